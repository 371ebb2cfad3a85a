// A device that works in the background: all launches of a step are under way before the engine
// waits for the first, and none of their time is counted twice.
#include <gtest/gtest.h>

#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

FixtureOptions TwoGroups() {
  FixtureOptions options;
  options.num_groups = 2;
  return options;
}

const Call& RunBothGroups(EngineFixture& f, uint64_t sequence) {
  return f.Run(f.Attend({{.seq = sequence, .layer = 0, .tokens = {3, 4}, .q_len = 2},
                         {.seq = sequence, .layer = 1, .tokens = {3, 4}, .q_len = 2}}));
}

TEST(BackgroundDeviceTest, GetsAllLaunchesOfAStepBeforeItIsWaitedFor) {
  EngineFixture f(TwoGroups());
  const uint64_t sequence = f.Open();
  f.device->works_in_background = true;
  const Call& call = RunBothGroups(f, sequence);
  EXPECT_EQ(f.device->calls, "LLWW");
  for (const size_t item : {0, 1}) {
    EXPECT_EQ(ReasonAt(std::get<AttendResult>(call.result), item), Reason::kOk);
  }
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), EngineFixture::ExpectedOut({3, 4}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 3), EngineFixture::ExpectedOut({3, 4}));
}

TEST(BackgroundDeviceTest, ADeviceThatIsDoneAtOnceIsWaitedForAtOnce) {
  EngineFixture f(TwoGroups());
  RunBothGroups(f, f.Open());
  EXPECT_EQ(f.device->calls, "LWLW");
}

TEST(BackgroundDeviceTest, TimeOfLaunchesThatOverlapIsCountedOnce) {
  for (const bool in_background : {false, true}) {
    EngineFixture f(TwoGroups());
    const uint64_t sequence = f.Open();
    f.device->works_in_background = in_background;
    f.device->clock = &f.clock;
    f.device->nanos_per_flop = 1000;
    const Nanos before = f.clock.Now();
    RunBothGroups(f, sequence);
    const auto elapsed = static_cast<uint64_t>(f.clock.Now() - before);
    EXPECT_GT(elapsed, 0u);
    EXPECT_EQ(f.engine->stats().launch_time.sum(), elapsed) << in_background;
  }
}

TEST(BackgroundDeviceTest, AWaitThatFailsFailsTheItemsOfItsLaunchOnly) {
  EngineFixture f(TwoGroups());
  const uint64_t sequence = f.Open();
  f.device->works_in_background = true;
  f.device->next_wait_error = MakeError(Reason::kInternal, "device", "broken");
  const Call& call = RunBothGroups(f, sequence);
  const auto& result = std::get<AttendResult>(call.result);
  EXPECT_EQ(ReasonAt(result, 0), Reason::kInternal);
  EXPECT_EQ(ReasonAt(result, 1), Reason::kOk);
  EXPECT_EQ(f.LengthOf(sequence, 0), 0u);
  EXPECT_EQ(f.LengthOf(sequence, 1), 2u);
}

}  // namespace
}  // namespace attn::server
