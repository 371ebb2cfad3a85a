#include "server/rpc/watchdog.h"

#include <algorithm>
#include <chrono>

namespace attn::server {

Watchdog::Watchdog(RpcContext* context, Nanos stall_time)
    : context_(context),
      stall_time_(stall_time),
      last_progress_(context->clock->Now()),
      thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::Run() {
  const auto period = std::chrono::nanoseconds(std::min(stall_time_ / 4, kSecond));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [this] { return stopping_; })) Look();
}

void Watchdog::Look() {
  const Nanos now = context_->clock->Now();
  const uint64_t heartbeat = context_->engine->heartbeat();
  const bool idle = context_->engine->queue().load().items == 0;
  if (idle || heartbeat != last_heartbeat_) last_progress_ = now;
  last_heartbeat_ = heartbeat;
  const Nanos stands_still = now - last_progress_;
  const bool progresses = stands_still < stall_time_;
  const bool lost = !context_->engine->device_error().ok();  // the engine has reported it
  if (context_->health.SetDataPath(progresses && !lost) && !lost) {
    progresses ? context_->events->Recovered() : context_->events->Stalled(stands_still);
  }
  context_->events->ReportHeldBack();
}

}  // namespace attn::server
