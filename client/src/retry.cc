#include "client/src/retry.h"

#include <algorithm>
#include <random>

#include "attn/base/error.h"

namespace attn::client {

bool CanRetry(const absl::Status& failure) {
  if (failure.ok()) return false;
  switch (ReasonOf(failure)) {
    case Reason::kDraining:
    case Reason::kDeviceLost:
    case Reason::kQueueFull:
      return true;
    case Reason::kNoPages:
    case Reason::kQuota:
      return RetryAfterMsOf(failure) != 0;
    case Reason::kInternal:
      // A status that came without a reason: the transport's own.
      return failure.code() == absl::StatusCode::kUnavailable;
    default:
      return false;
  }
}

absl::Status PassingFailure(const AttendResult& result) {
  for (const AttendOutcome& item : result.items) {
    if (!CanRetry(item.status)) return absl::OkStatus();
  }
  return result.FirstError();
}

uint32_t BackoffMs(const RetryPolicy& policy, uint32_t attempts, uint32_t retry_after_ms,
                   uint64_t random) {
  const uint32_t doublings = std::min(attempts - 1, 20u);
  const uint64_t exponential =
      std::min<uint64_t>(uint64_t{policy.initial_backoff_ms} << doublings, policy.max_backoff_ms);
  const uint64_t base = std::max<uint64_t>(exponential, retry_after_ms);
  return static_cast<uint32_t>(std::min<uint64_t>(base + random % (base / 2 + 1), UINT32_MAX));
}

uint64_t RandomKey() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  uint64_t key = 0;
  while (key == 0) key = generator();
  return key;
}

}  // namespace attn::client
