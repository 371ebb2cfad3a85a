// Is time monotonic, and does the fake one move only when told to?
#include "attn/base/clock.h"

#include "gtest/gtest.h"

namespace attn {
namespace {

TEST(ClockTest, RealTimeNeverGoesBack) {
  const Clock& clock = Clock::Real();
  Nanos last = clock.Now();
  for (int i = 0; i < 10'000; ++i) {
    const Nanos now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, RealTimeMoves) {
  const Clock& clock = Clock::Real();
  const Nanos start = clock.Now();
  while (clock.Now() == start) {
  }
  EXPECT_GT(clock.Now(), start);
}

TEST(ClockTest, FakeTimeMovesByWhatItIsTold) {
  FakeClock clock(5);
  EXPECT_EQ(clock.Now(), 5);
  EXPECT_EQ(clock.Now(), 5);
  clock.Advance(2 * kMillisecond);
  EXPECT_EQ(clock.Now(), 2'000'005);
}

}  // namespace
}  // namespace attn
