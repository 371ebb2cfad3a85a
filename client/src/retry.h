// Which failures pass, and how long to wait for that.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "attn/client/attend.h"
#include "attn/client/options.h"

namespace attn::client {

// Whether sending the same again can help.
bool CanRetry(const absl::Status& failure);

// A request all of whose items failed in a way that passes counts as failed in that way; OK
// otherwise. (Mixed outcomes are the caller's to judge.)
absl::Status PassingFailure(const AttendResult& result);

// Wait after `attempts` failed attempts (at least 1). `random` is any number.
uint32_t BackoffMs(const RetryPolicy& policy, uint32_t attempts, uint32_t retry_after_ms,
                   uint64_t random);

// From a generator of this thread that starts at a random point. Never 0.
uint64_t RandomKey();

}  // namespace attn::client
