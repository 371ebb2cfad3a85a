// A caller of a byte stream: writes a message, waits for the answer, writes the next. One code path
// for the attention server and for the bare echo that it is compared with.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "attn/base/clock.h"
#include "attn/v1/attention.pb.h"

namespace attn::bench {

// Makes the messages of one caller: a token appended to one layer after the other of one sequence.
class MessageMaker {
 public:
  // `first_layer` spreads callers over the layers, so that launches can mix them.
  MessageMaker(uint64_t sequence, uint32_t num_layers, uint32_t first_layer);

  // Serialized AttendStreamRequest.
  grpc::ByteBuffer Next();

 private:
  v1::AttendStreamRequest message_;
  std::vector<uint32_t> lens_;  // per layer
  uint32_t layer_;
  uint64_t count_ = 0;
};

struct CallerResult {
  std::vector<double> round_trips_us;
  uint64_t launch_items = 0;  // summed over answers
  uint64_t failures = 0;
  std::string first_failure;
};

// Plays ping-pong on a stream of `method` until told to stop. Owned by the caller of Wait.
class Caller : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Caller(grpc::GenericStub* stub, const std::string& method, MessageMaker maker);
  void Start() { Send(); }
  void Stop() { stopping_.store(true); }
  CallerResult Wait();

 private:
  void Send();
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void NoteAnswer();
  // The answer may be there before the write is reported done; the next message waits for both.
  void FinishOne();

  grpc::ClientContext context_;
  MessageMaker maker_;
  grpc::ByteBuffer outgoing_;
  grpc::ByteBuffer incoming_;
  std::atomic<int> outstanding_{0};  // of one read and one write
  Nanos sent_ = 0;
  std::atomic<bool> stopping_{false};
  CallerResult result_;
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
};

}  // namespace attn::bench
