// One AttendStream: reads requests, hands them to the engine, writes answers as they come.
//
// Never more than max_in_flight_per_stream requests (or their answers not yet written) at a time:
// beyond that it stops reading, and the transport slows the client down.
#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/core/sequence_names.h"
#include "server/core/stream_scope.h"
#include "server/rpc/completion.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/stream_set.h"

namespace attn::server {

// Three kinds of threads meet here: gRPC's (reads, writes, cancellation), the completion thread and
// the one that drains. What they share is under mutex_; no gRPC operation is started under it.
class AttendStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public DrainableStream,
                           public std::enable_shared_from_this<AttendStream> {
 public:
  static AttendStream* Start(RpcContext* context, grpc::CallbackServerContext* rpc);
  AttendStream(RpcContext* context, grpc::CallbackServerContext* rpc);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void AnnounceDrain() override;
  void EndForDrain() override;
  void CancelIfUnread() override;

 private:
  class Origin;
  // A place among max_in_flight_per_stream: from the arrival of a request until its answer has been
  // written. Messages about the stream hold none.
  struct Slot {
    uint32_t requests = 0;
    uint64_t bytes = 0;
  };
  struct Outgoing {
    grpc::ByteBuffer bytes;
    Slot slot;
  };
  enum class Action { kNone, kRead, kWrite, kFinish };

  // ---- gRPC thread, inside OnReadDone
  void Handle(grpc::ByteBuffer bytes);
  absl::Status Admit(v1::AttendStreamRequest* request, size_t bytes, Nanos arrival);
  absl::Status Submit(v1::AttendStreamRequest* request, const std::shared_ptr<Origin>& origin,
                      Nanos arrival);
  absl::Status CancelRequests(const v1::AttendStreamRequest& request,
                              v1::AttendStreamResponse* response);
  absl::Status CheckRequestId(uint64_t id) const;  // REQUIRES: mutex_

  // ---- completion thread
  void Answer(const Origin& origin, std::unique_ptr<Call> call);

  // ---- any thread
  // Queues `response` for writing. A nonzero `settled_id` is no longer in flight.
  void Send(v1::AttendStreamResponse* response, uint64_t settled_id, Slot slot);
  void AddFlow(v1::AttendStreamResponse* response);
  // Starts whatever can be started now.
  void Pump();
  Action NextAction();      // REQUIRES: mutex_
  bool CanRead() const;     // REQUIRES: mutex_
  bool CanFinish() const;   // REQUIRES: mutex_
  void Release(Slot slot);  // REQUIRES: mutex_
  void FinishNow();

  RpcContext* const context_;
  grpc::CallbackServerContext* const rpc_;  // until the stream is finished
  const uint64_t connection_;               // equal for streams of one connection
  const std::shared_ptr<StreamScope> scope_ = std::make_shared<StreamScope>();
  std::atomic<bool> flow_due_{true};

  // Of the one reaction that reads.
  AliasNotes aliases_;
  alignas(8) std::array<char, 4096> arena_block_;
  google::protobuf::Arena arena_;
  grpc::ByteBuffer incoming_;

  // Of the one write under way.
  Outgoing writing_;

  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Origin>> in_flight_;  // until answered
  Slot used_;
  std::deque<Outgoing> outgoing_;
  bool read_started_ = false;  // until its message has been handled
  bool handling_ = false;      // a message has arrived and is not yet in flight or answered
  bool write_started_ = false;
  bool reads_ended_ = false;  // half-close, a broken connection or a protocol error
  bool cancelled_ = false;
  bool draining_ = false;  // end as soon as nothing is in flight
  bool finished_ = false;
  uint64_t num_writes_ended_ = 0;
  uint64_t num_writes_seen_ = 0;  // of them, when a drain looked last
  int starting_ = 0;              // operations decided on under mutex_ and not yet passed to gRPC
  std::optional<absl::Status> protocol_error_;
};

}  // namespace attn::server
