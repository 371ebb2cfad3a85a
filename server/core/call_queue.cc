// The queue between the rpc layer and the engine: a vector under a mutex, taken whole.
#include "server/core/call_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::server {
namespace {

// A busy server answers a queue's worth of one-token items in about this time.
constexpr uint32_t kRetryAfterMs = 20;
// Estimates are not good enough to refuse for less.
constexpr Nanos kShortestWait = kMillisecond;
constexpr Nanos kLongestRetry = 10 * kSecond;

bool FreesResources(const Request& request) {
  return std::holds_alternative<StreamEndedCall>(request) ||
         std::holds_alternative<CloseCall>(request) || std::holds_alternative<RenewCall>(request);
}

absl::Status TooLong(const Call& call, Nanos wait, absl::string_view what, Nanos limit) {
  const Nanos retry = std::clamp(wait - limit, kMillisecond, kLongestRetry);
  return MakeError(Reason::kQueueFull, "",
                   absl::StrCat("work ahead of this call takes about ", wait / kMicrosecond,
                                " us and the call itself ", call.time.total() / kMicrosecond,
                                " us, but ", what, " ", limit / kMicrosecond, " us"),
                   static_cast<uint32_t>(retry / kMillisecond));
}

}  // namespace

absl::Status CallQueue::Admit(const Call& call, size_t items, size_t bytes) const {
  if (closed_) return MakeError(Reason::kDraining, "", "the server is stopping");
  if (FreesResources(call.request)) return absl::OkStatus();
  if (items > limits_.max_items) {
    return MakeError(Reason::kTooLarge, "items",
                     absl::StrCat("got ", items, ", want at most ", limits_.max_items));
  }
  if (bytes > limits_.max_bytes) {
    return MakeError(
        Reason::kTooLarge, "tensors",
        absl::StrCat("got ", bytes, " bytes in and out, want at most ", limits_.max_bytes));
  }
  if (load_.items + items > limits_.max_items || load_.bytes + bytes > limits_.max_bytes) {
    return MakeError(
        Reason::kQueueFull, "",
        absl::StrCat(load_.items, " of ", limits_.max_items, " items and ", load_.bytes, " of ",
                     limits_.max_bytes, " bytes are in flight; this call brings ", items,
                     " items and ", bytes, " bytes"),
        kRetryAfterMs);
  }
  return CheckWait(call);
}

absl::Status CallQueue::CheckWait(const Call& call) const {
  const Nanos wait = backlog_.WaitOf(call.time);
  if (wait < kShortestWait) return absl::OkStatus();
  if (limits_.max_wait > 0 && wait > limits_.max_wait) {
    return TooLong(call, wait, "calls may wait", limits_.max_wait);
  }
  if (call.deadline == kNever) return absl::OkStatus();
  const Nanos time_left = call.deadline - call.arrival;
  if (wait + call.time.total() <= time_left) return absl::OkStatus();
  return TooLong(call, wait, "its time limit is", time_left);
}

absl::Status CallQueue::Push(std::unique_ptr<Call> call) {
  const size_t items = call->num_items();
  const size_t bytes = call->num_bytes();
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (absl::Status refusal = Admit(*call, items, bytes); !refusal.ok()) return refusal;
    load_.items += items;
    load_.bytes += bytes;
    backlog_.Add(call->time);
    calls_.push_back(std::move(call));
    wake = wanted_ != 0 && calls_.size() >= wanted_;
    if (wake) wanted_ = 0;
  }
  if (wake) wake_.notify_one();
  return absl::OkStatus();
}

void CallQueue::Poke() {
  {
    std::lock_guard lock(mutex_);
    poked_ = true;
  }
  wake_.notify_one();
}

void CallQueue::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

std::vector<std::unique_ptr<Call>> CallQueue::WaitForCalls(Nanos deadline) {
  return WaitForMoreCalls(1, deadline);
}

std::vector<std::unique_ptr<Call>> CallQueue::WaitForMoreCalls(size_t count, Nanos deadline) {
  std::unique_lock lock(mutex_);
  const auto enough = [&] { return calls_.size() >= count || poked_; };
  if (!enough()) {
    wanted_ = count;
    if (deadline == kNever) {
      wake_.wait(lock, enough);
    } else if (const Nanos left = deadline - Clock::Real().Now(); left > 0) {
      wake_.wait_for(lock, std::chrono::nanoseconds(left), enough);
    }
    wanted_ = 0;
  }
  poked_ = false;
  return std::exchange(calls_, {});
}

void CallQueue::Release(const std::vector<std::unique_ptr<Call>>& calls) {
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Call>& call : calls) {
    load_.items -= call->num_items();
    load_.bytes -= call->num_bytes();
    backlog_.Remove(call->time);
  }
}

CallQueue::Load CallQueue::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

}  // namespace attn::server
