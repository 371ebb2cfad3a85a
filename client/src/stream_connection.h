// One gRPC stream: reads until it ends, writes one message at a time. Knows nothing of requests.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <mutex>

#include "absl/status/status.h"

namespace attn::client {

// Hears of a connection. Called on gRPC's threads, one event at a time per kind.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual void OnAnswer(grpc::ByteBuffer* message) = 0;
  virtual void OnWritten() = 0;  // also for a write that failed: OnEnded follows
  virtual void OnEnded(const absl::Status& status) = 0;  // once, the last of gRPC's events
  // The connection object is gone. On the timer's thread.
  virtual void OnReleased() = 0;
};

class StreamConnection : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Keeps itself and its owner alive until the stream has ended. Its context refers to the gRPC
  // channel, and a channel must not end on one of its own threads: the connection is therefore
  // destroyed on the timer's thread.
  static std::shared_ptr<StreamConnection> Start(grpc::GenericStub& stub,
                                                 std::shared_ptr<ConnectionOwner> owner);

  // False if the stream is ending: nothing was written, and no OnWritten comes. One write at a
  // time.
  bool Write(const grpc::ByteBuffer& message);
  void Cancel() { context_.TryCancel(); }

 private:
  explicit StreamConnection(std::shared_ptr<ConnectionOwner> owner) : owner_(std::move(owner)) {}
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<ConnectionOwner> owner_;
  std::shared_ptr<StreamConnection> self_;  // until OnDone
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::mutex mutex_;
  bool reads_ended_ = false;  // guarded by mutex_; no write starts once it is set
};

}  // namespace attn::client
