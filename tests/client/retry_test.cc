// How long a repeat waits, and what is repeated at all.
#include "client/src/retry.h"

#include <gtest/gtest.h>

#include "attn/base/error.h"

namespace attn::client {
namespace {

TEST(RetryTest, WaitsGrowToTheMaximumAndNeverFallBelowTheHint) {
  RetryPolicy policy;
  policy.initial_backoff_ms = 10;
  policy.max_backoff_ms = 100;
  EXPECT_EQ(BackoffMs(policy, 1, 0, 0), 10u);
  EXPECT_EQ(BackoffMs(policy, 3, 0, 0), 40u);
  EXPECT_EQ(BackoffMs(policy, 30, 0, 0), 100u);
  EXPECT_EQ(BackoffMs(policy, 1, 500, 0), 500u);
}

TEST(RetryTest, JitterAddsLessThanAHalf) {
  RetryPolicy policy;
  policy.initial_backoff_ms = 100;
  bool any_jitter = false;
  for (uint64_t random = 0; random < 1000; ++random) {
    const uint32_t wait = BackoffMs(policy, 1, 0, random * 7919);
    EXPECT_GE(wait, 100u);
    EXPECT_LE(wait, 150u);
    any_jitter |= wait != 100;
  }
  EXPECT_TRUE(any_jitter);
}

TEST(RetryTest, OnlyFailuresThatPassAreRetried) {
  EXPECT_TRUE(CanRetry(absl::UnavailableError("connection lost")));
  EXPECT_TRUE(CanRetry(MakeError(Reason::kDraining, "", "x")));
  EXPECT_TRUE(CanRetry(MakeError(Reason::kQueueFull, "", "x")));
  EXPECT_TRUE(CanRetry(MakeError(Reason::kNoPages, "", "x", 5)));
  EXPECT_FALSE(CanRetry(MakeError(Reason::kNoPages, "", "x")));
  EXPECT_FALSE(CanRetry(MakeError(Reason::kInvalid, "", "x", 5)));
  EXPECT_FALSE(CanRetry(MakeError(Reason::kLengthMismatch, "", "x", 5)));
  EXPECT_FALSE(CanRetry(MakeError(Reason::kInternal, "", "x")));
  EXPECT_FALSE(CanRetry(absl::InternalError("x")));
  EXPECT_FALSE(CanRetry(absl::OkStatus()));
}

TEST(RetryTest, KeysAreRandomAndNeverZero) {
  EXPECT_NE(RandomKey(), RandomKey());
  EXPECT_NE(RandomKey(), 0u);
}

}  // namespace
}  // namespace attn::client
