// When a launch waits for more calls.
#include "server/core/gather_rule.h"

#include <gtest/gtest.h>

namespace attn::server {
namespace {

constexpr Nanos kWait = 200 * kMicrosecond;

TEST(GatherRuleTest, ALoneCallerNeverWaits) {
  GatherRule rule(kWait);
  Nanos now = kSecond;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(rule.WaitFor(1, now, now).has_value());
    rule.Launched(1, now);
    now += 50 * kMicrosecond;
  }
}

TEST(GatherRuleTest, SeveralCallersAreWaitedFor) {
  GatherRule rule(kWait);
  const Nanos now = kSecond;
  rule.Launched(8, now);
  const auto wait = rule.WaitFor(1, now, now);
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->num_calls, 8u);
  EXPECT_EQ(wait->until, now + kWait);
  EXPECT_FALSE(rule.WaitFor(8, now, now).has_value()) << "all are there";
  EXPECT_FALSE(rule.WaitFor(1, now - kWait, now).has_value()) << "it has waited already";
}

TEST(GatherRuleTest, AFewLaunchesLookForMoreCallers) {
  GatherRule rule(kWait);
  const Nanos now = kSecond;
  int probes = 0;
  for (int i = 0; i < 64; ++i) {
    rule.Launched(4, now);
    const auto wait = rule.WaitFor(1, now, now);
    ASSERT_TRUE(wait.has_value());
    probes += wait->num_calls == 8 ? 1 : 0;
  }
  EXPECT_EQ(probes, 2);
}

TEST(GatherRuleTest, CallersThatWentAwayAreForgotten) {
  GatherRule rule(kWait);
  Nanos now = kSecond;
  rule.Launched(8, now);
  for (; now < kSecond + 9 * kMillisecond; now += kMillisecond) rule.Launched(1, now);
  EXPECT_FALSE(rule.WaitFor(1, now, now).has_value());
  rule.Launched(8, now);
  EXPECT_FALSE(rule.WaitFor(1, now + kSecond, now + kSecond).has_value());
}

TEST(GatherRuleTest, CanBeSwitchedOff) {
  GatherRule rule(0);
  rule.Launched(8, kSecond);
  EXPECT_FALSE(rule.WaitFor(1, kSecond, kSecond).has_value());
}

}  // namespace
}  // namespace attn::server
