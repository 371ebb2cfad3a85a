#include "client/src/stream_connection.h"

#include <utility>

#include "client/src/timer.h"
#include "client/src/wire_status.h"

namespace attn::client {

std::shared_ptr<StreamConnection> StreamConnection::Start(grpc::GenericStub& stub,
                                                          std::shared_ptr<ConnectionOwner> owner) {
  std::shared_ptr<StreamConnection> connection(new StreamConnection(std::move(owner)));
  connection->self_ = connection;
  stub.PrepareBidiStreamingCall(&connection->context_, "/attn.v1.Attention/AttendStream",
                                grpc::StubOptions(), connection.get());
  // Writes start outside of reactions; the hold keeps OnDone away until reading has ended.
  connection->AddHold();
  connection->StartRead(&connection->incoming_);
  connection->StartCall();
  return connection;
}

bool StreamConnection::Write(const grpc::ByteBuffer& message) {
  const std::lock_guard lock(mutex_);
  if (reads_ended_) return false;
  outgoing_ = message;  // shares the slices
  StartWrite(&outgoing_);
  return true;
}

void StreamConnection::OnReadDone(bool ok) {
  if (ok) {
    owner_->OnAnswer(&incoming_);
    StartRead(&incoming_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    reads_ended_ = true;
  }
  RemoveHold();
}

void StreamConnection::OnWriteDone(bool) { owner_->OnWritten(); }

void StreamConnection::OnDone(const grpc::Status& status) {
  std::shared_ptr<StreamConnection> self = std::move(self_);
  std::shared_ptr<ConnectionOwner> owner = std::move(owner_);
  owner->OnEnded(FromGrpc(status));
  Timer::Shared().After(0, [self = std::move(self), owner = std::move(owner)]() mutable {
    self.reset();
    owner->OnReleased();
  });
}

}  // namespace attn::client
