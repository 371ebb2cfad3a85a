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
  auto call_made = std::make_shared<RenewCall>();
  {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    busy = true;
    call = &call_made->context;
  }
  call_made->request.set_server_epoch(session->epoch());
  call_made->request.set_owner(owner);
  call_made->request.set_lease_ms(lease_ms);
  call_made->context.set_deadline(std::chrono::system_clock::now() +
                                  std::chrono::milliseconds(lease_ms));
  session->sequences().async()->RenewLease(
      &call_made->context, &call_made->request, &call_made->response,
      [renew = call_made, self = shared_from_this()](const grpc::Status& status) mutable {
        self->OnAnswer(FromGrpc(status), FromWire(renew->response));
        // The call refers to the channel, which must not end on a thread of its own.
        Timer::Shared().After(0, [renew = std::move(renew), self = std::move(self)]() mutable {
          renew.reset();
          const std::lock_guard lock(self->mutex);
          self->busy = false;
          self->idle.notify_all();
        });
      });
}

void LeaseKeeper::State::OnAnswer(const absl::Status& status, const Renewal& renewal) {
  {
    const std::lock_guard lock(mutex);
    call = nullptr;
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
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  if (state_->call != nullptr) state_->call->TryCancel();
  state_->idle.wait(lock, [this] { return !state_->busy; });
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
