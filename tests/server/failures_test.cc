// What the engine does when something goes wrong: late calls, no pages, failing and lost devices,
// stopping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;

std::vector<int> Tokens(int count) {
  std::vector<int> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

class FailuresTest : public ::testing::Test {
 protected:
  ~FailuresTest() override { EXPECT_TRUE(f.engine->cache_for_test().CheckInvariants().ok()); }

  // Prefill takes many chunks from here on, a block of rows and more than 3 ms each; the engine
  // learns it from a first one.
  static void SlowDown(EngineFixture& fixture) {
    fixture.device->nanos_per_flop = 50;
    fixture.device->nanos_per_byte = 8 * 50;
    const uint64_t s = fixture.Open();
    fixture.RunAttend({{.seq = s, .tokens = Tokens(100), .q_len = 100}});
    fixture.Run(fixture.Make(CloseCall{.sequences = {{s}}}));
    fixture.device->records.clear();
  }
  bool AllNan(const AttendResult& result) const {
    const auto* out = reinterpret_cast<const float*>(result.out.data());
    for (size_t i = 0; i < result.out.size() / 4; ++i) {
      if (!std::isnan(out[i])) return false;
    }
    return !result.out.empty();
  }

  EngineFixture f;
};

TEST_F(FailuresTest, AnExpiredCallIsNotRun) {
  const uint64_t s = f.Open();
  auto call = f.Attend({{.seq = s, .tokens = {1}}});
  call->deadline = f.clock.Now();
  const Call& answer = f.Run(std::move(call));
  const auto& result = std::get<AttendResult>(answer.result);
  EXPECT_EQ(ReasonAt(result, 0), Reason::kDeadline);
  EXPECT_TRUE(AllNan(result));
  EXPECT_EQ(f.LengthOf(s, 0), 0u);
  EXPECT_TRUE(f.device->records.empty());
}

TEST_F(FailuresTest, ACallThatIsCancelledBetweenChunksKeepsItsAppendAndARepeatComputesAll) {
  SlowDown(f);
  const uint64_t s = f.Open();
  const Item prefill{.seq = s, .tokens = Tokens(200), .q_len = 200, .append_token = 42};
  auto call = f.Attend({prefill});
  const auto flag = call->cancelled;
  f.device->on_launch = [&](const Batch&) {
    if (f.device->records.size() == 3) flag->store(true);
  };
  const uint64_t id = f.Push(std::move(call));
  f.Drain();
  EXPECT_EQ(f.device->records.size(), 4u) << "the running chunk ends, no other starts";
  EXPECT_EQ(ReasonAt(f.AttendAnswer(id), 0), Reason::kCancelled);
  EXPECT_EQ(f.AttendAnswer(id).items[0].new_len, 200u);
  EXPECT_TRUE(AllNan(f.AttendAnswer(id)));
  f.device->on_launch = nullptr;
  const Call& repeat = f.Run(f.Attend({prefill}));
  EXPECT_TRUE(std::get<AttendResult>(repeat.result).items[0].replayed);
  EXPECT_NEAR(f.OutRow(repeat, 199), f.ExpectedOut(Tokens(200)), 1e-3);
  EXPECT_EQ(f.LengthOf(s, 0), 200u);
}

TEST_F(FailuresTest, ADeadlineIsLookedAtBeforeEveryChunk) {
  SlowDown(f);
  const uint64_t s = f.Open();
  auto call = f.Attend({{.seq = s, .tokens = Tokens(200), .q_len = 200}});
  call->deadline = f.clock.Now() + 12 * kMillisecond;
  const Nanos deadline = call->deadline;
  const uint64_t id = f.Push(std::move(call));
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(id), 0), Reason::kDeadline);
  EXPECT_EQ(f.AttendAnswer(id).items[0].new_len, 200u);
  EXPECT_LT(f.clock.Now(), deadline + 20 * kMillisecond);
}

TEST_F(FailuresTest, LateCallsInLineAreAnsweredSoonThoughALongPrefillIsAhead) {
  SlowDown(f);
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  const uint64_t prefill = f.Push(f.Attend({{.seq = s, .tokens = Tokens(400), .q_len = 400}}));
  f.engine->StepByHand();
  // One waits behind the prefill in its sequence, one only for its turn; a Fork waits too.
  auto behind = f.Attend({{.seq = s, .expected_len = 400, .tokens = {1}}});
  auto bulk = f.Attend({{.seq = t, .tokens = Tokens(400), .q_len = 400}});
  ForkCall fork;
  fork.items.resize(1);
  fork.items[0].parent.value = s;
  fork.items[0].num_children = 1;
  auto forking = f.Make(fork);
  const std::vector<std::shared_ptr<CancelFlag>> flags = {behind->cancelled, bulk->cancelled,
                                                          forking->cancelled};
  const uint64_t first = f.Push(std::move(behind));
  const uint64_t second = f.Push(std::move(bulk));
  const uint64_t third = f.Push(std::move(forking));
  f.engine->StepByHand();
  for (const auto& flag : flags) flag->store(true);
  const Nanos cancelled = f.clock.Now();
  while (f.Answer(first) == nullptr || f.Answer(second) == nullptr || f.Answer(third) == nullptr) {
    ASSERT_TRUE(f.engine->StepByHand());
  }
  EXPECT_LT(f.clock.Now() - cancelled, 20 * kMillisecond);
  EXPECT_EQ(f.Answer(prefill), nullptr) << "the backlog is still there";
  EXPECT_EQ(ReasonAt(f.AttendAnswer(first), 0), Reason::kCancelled);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(second), 0), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(f.Answer(third)->status), Reason::kCancelled);
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(prefill), 0), Reason::kOk);
}

TEST_F(FailuresTest, AFailedLaunchRollsBackAndTheRepeatAppends) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2}, .q_len = 0}});
  const Item item{.seq = s, .expected_len = 2, .tokens = {3}};
  for (absl::Status* error : {&f.device->next_launch_error, &f.device->next_wait_error}) {
    *error = MakeError(Reason::kInternal, "", "the launch failed");
    const Call& failed = f.Run(f.Attend({item}));
    const auto& result = std::get<AttendResult>(failed.result);
    EXPECT_EQ(ReasonAt(result, 0), Reason::kInternal);
    EXPECT_EQ(result.items[0].new_len, 2u);
    EXPECT_TRUE(AllNan(result));
  }
  const Call& repeat = f.Run(f.Attend({item}));
  EXPECT_FALSE(std::get<AttendResult>(repeat.result).items[0].replayed);
  EXPECT_FLOAT_EQ(f.OutRow(repeat, 0), f.ExpectedOut({1, 2, 3}));
}

TEST_F(FailuresTest, CopiesOfAFailedLaunchAreDoneByTheNext) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .layer = 0, .tokens = {1, 2, 3}, .q_len = 0},
               {.seq = s, .layer = 1, .tokens = {4, 5, 6}, .q_len = 0}});
  ForkCall fork;
  fork.items.resize(1);
  fork.items[0].parent.value = s;
  fork.items[0].num_children = 1;
  const Call& forked = f.Run(f.Make(fork));
  const uint64_t child = std::get<ForkResult>(forked.result).children[0].value;
  f.device->next_launch_error = MakeError(Reason::kInternal, "", "the launch failed");
  f.RunAttend({{.seq = child, .expected_len = 3, .tokens = {9}}});
  const Call& read = f.Run(f.Attend({{.seq = child}, {.seq = child, .layer = 1}}));
  EXPECT_FLOAT_EQ(f.OutRow(read, 0), f.ExpectedOut({1, 2, 3}));
  EXPECT_FLOAT_EQ(f.OutRow(read, 1), f.ExpectedOut({4, 5, 6}));
}

TEST_F(FailuresTest, AfterALostDeviceCallsAreUnavailableButBookkeepingGoesOn) {
  const uint64_t s = f.Open();
  f.device->next_wait_error = MakeError(Reason::kDeviceLost, "", "gone");
  const uint64_t first = f.Push(f.Attend({{.seq = s, .tokens = {1}}}));
  const uint64_t behind = f.Push(f.Attend({{.seq = s, .expected_len = 1, .tokens = {2}}}));
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(first), 0), Reason::kDeviceLost);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(behind), 0), Reason::kDeviceLost);
  const Call& later = f.Run(f.Attend({{.seq = s}}));
  EXPECT_EQ(ReasonOf(later.status), Reason::kDeviceLost);
  EXPECT_EQ(later.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(f.engine->Supports(AttentionSpec())), Reason::kDeviceLost);
  const Call& close = f.Run(f.Make(CloseCall{.sequences = {{s}}}));
  EXPECT_TRUE(std::get<CloseResult>(close.result).items[0].ok());
}

TEST_F(FailuresTest, AFullCacheFailsAtOnceAndServesAgainAfterAClose) {
  FixtureOptions small;
  small.engine.kv_bytes = 64 << 10;
  EngineFixture full(small);
  const uint64_t s = full.Open();
  const uint64_t other = full.Open();
  uint32_t len = 0;
  std::vector<int> tokens(100, 1);
  full.RunAttend({{.seq = other, .tokens = std::vector<int>(200, 1), .q_len = 0}});
  Reason reason = Reason::kOk;
  while (reason == Reason::kOk) {
    reason = ReasonAt(
        full.RunAttend({{.seq = s, .expected_len = len, .tokens = tokens, .q_len = 0}}), 0);
    if (reason == Reason::kOk) len += 100;
    ASSERT_LT(len, 100000u);
  }
  EXPECT_EQ(reason, Reason::kNoPages);
  const uint64_t t = full.Open();
  for (int i = 0; i < 100; ++i) {
    // A mate that needs no new page is served in the same step.
    const Call& call = full.Run(full.Attend(
        {{.seq = s, .expected_len = len, .tokens = tokens, .q_len = 1}, {.seq = s, .layer = 1}}));
    ASSERT_EQ(ReasonAt(std::get<AttendResult>(call.result), 0), Reason::kNoPages);
    ASSERT_EQ(ReasonAt(std::get<AttendResult>(call.result), 1), Reason::kOk);
  }
  full.Run(full.Make(CloseCall{.sequences = {{s}}}));
  EXPECT_EQ(ReasonAt(full.RunAttend({{.seq = t, .tokens = tokens}}), 0), Reason::kOk);
  EXPECT_TRUE(full.engine->cache_for_test().CheckInvariants().ok());
}

TEST_F(FailuresTest, StopAnswersEverythingThatWasAccepted) {
  const uint64_t s = f.Open();
  std::vector<uint64_t> calls;
  for (uint32_t i = 0; i < 20; ++i) {
    calls.push_back(f.Push(f.Attend({{.seq = s, .expected_len = i, .tokens = {1}}})));
  }
  f.engine->Stop();
  for (const uint64_t call : calls) EXPECT_EQ(ReasonAt(f.AttendAnswer(call), 0), Reason::kOk);
  EXPECT_EQ(ReasonOf(f.engine->queue().Push(f.Attend({{.seq = s}}))), Reason::kDraining);
  EXPECT_EQ(f.engine->queue().load().items, 0u);
  EXPECT_EQ(f.engine->queue().load().bytes, 0u);
}

TEST_F(FailuresTest, WhatIsUnfinishedAfterTheGraceIsDraining) {
  FixtureOptions hasty;
  hasty.engine.drain_grace = 30 * kMillisecond;
  EngineFixture g(hasty);
  SlowDown(g);
  const uint64_t s = g.Open();
  const uint64_t prefill = g.Push(g.Attend({{.seq = s, .tokens = Tokens(400), .q_len = 400}}));
  const uint64_t close = g.Push(g.Make(CloseCall{.sequences = {{s}}}));
  const Nanos began = g.clock.Now();
  g.engine->Stop();
  EXPECT_EQ(ReasonAt(g.AttendAnswer(prefill), 0), Reason::kDraining);
  EXPECT_EQ(ReasonOf(g.Answer(close)->status), Reason::kDraining);
  EXPECT_LT(g.clock.Now() - began, 60 * kMillisecond);
}

TEST_F(FailuresTest, TwoEnginesInOneProcessDoNotMeet) {
  EngineFixture other;
  const uint64_t s = f.Open();
  const uint64_t t = other.Open();
  f.RunAttend({{.seq = s, .tokens = {1}}});
  other.RunAttend({{.seq = t, .tokens = {2, 3}}});
  EXPECT_EQ(f.LengthOf(s, 0), 1u);
  EXPECT_EQ(other.LengthOf(t, 0), 2u);
}

TEST_F(FailuresTest, CountersAddUp) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1}}, {.seq = s, .layer = 1, .tokens = {1}}});
  f.RunAttend({{.seq = 77, .tokens = {1}}});
  const EngineStats& stats = f.engine->stats();
  EXPECT_EQ(stats.launches.value(), 1u);
  EXPECT_EQ(stats.launch_items.sum(), 2u);
  EXPECT_EQ(stats.launch_layers.sum(), 2u);
  EXPECT_EQ(stats.launched_callers.value(), 1u);
  EXPECT_EQ(stats.items_failed.value(), 1u);
  EXPECT_EQ(stats.refused_items[Reason::kUnknownSequence].value(), 1u);
  EXPECT_EQ(stats.calls_completed.value(), 4u) << "declare, open, two attends";
  EXPECT_GT(f.engine->heartbeat(), 0u);
}

}  // namespace
}  // namespace attn::server
