#include "client/src/lease_keeper.h"

#include <chrono>
#include <utility>

#include "client/src/timer.h"
#include "client/src/wire_sequence.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

// Beats per lease: several may get lost before the lease does.
constexpr uint32_t kBeatsPerLease = 6;
constexpr uint32_t kShortestBeatMs = 10;

struct RenewCall {
  grpc::ClientContext context;
  v1::RenewLeaseRequest request;
  v1::RenewLeaseResponse response;
};

}  // namespace

void LeaseKeeper::State::Beat() {
  {
    const std::lock_guard lock(mutex);
    if (stopped) return;
  }
  auto call = std::make_shared<RenewCall>();
  call->request.set_server_epoch(session->epoch());
  call->request.set_owner(owner);
  call->request.set_lease_ms(lease_ms);
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::milliseconds(lease_ms));
  // The stub's own callback keeps the call and this state alive.
  session->sequences().async()->RenewLease(
      &call->context, &call->request, &call->response,
      [call, self = shared_from_this()](const grpc::Status& status) {
        self->OnAnswer(FromGrpc(status), FromWire(call->response));
      });
}

void LeaseKeeper::State::OnAnswer(const absl::Status& status, const Renewal& renewal) {
  {
    const std::lock_guard lock(mutex);
    last = status;
    if (status.ok()) ++renewals;
    if (stopped) return;
  }
  if (status.ok() && !renewal.lost.empty() && on_lost) on_lost(renewal.lost);
  const uint32_t granted = status.ok() && renewal.lease_ms != 0 ? renewal.lease_ms : lease_ms;
  const uint32_t beat = std::max(granted / kBeatsPerLease, kShortestBeatMs);
  Timer::Shared().After(beat * kMillisecond, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Beat();
  });
}

LeaseKeeper::LeaseKeeper(std::shared_ptr<State> state) : state_(std::move(state)) {
  state_->Beat();
}

LeaseKeeper::~LeaseKeeper() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
}

absl::Status LeaseKeeper::last_status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last;
}

uint64_t LeaseKeeper::num_renewals() const {
  const std::lock_guard lock(state_->mutex);
  return state_->renewals;
}

}  // namespace attn::client
