// Attention through the embedder's engine: right answers in the caller's memory, calls that share
// launches, callbacks, and what ends a call early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "attn/base/error.h"
#include "attn/engine/engine.h"
#include "tests/embed/embedded_step.h"

namespace attn::engine {
namespace {

uint64_t NewSeed() {
  const uint64_t seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

class EngineAttendTest : public ::testing::TestWithParam<Drive> {
 protected:
  std::unique_ptr<Engine> engine_ = TestEngine({.drive = GetParam()});
  const uint64_t seed_ = NewSeed();
};

INSTANTIATE_TEST_SUITE_P(Drives, EngineAttendTest,
                         ::testing::Values(Drive::kCallers, Drive::kOwnThread),
                         [](const auto& param_info) {
                           return param_info.param == Drive::kCallers ? "Callers" : "OwnThread";
                         });

TEST_P(EngineAttendTest, AnswersAsAttentionInDoublePrecisionDoes) {
  const SequenceId a = engine_->Open("model", "me").value();
  const SequenceId b = engine_->Open("model", "me").value();
  KeptLayer a0, a1, b1;
  EmbeddedStep prompt(seed_);
  prompt.Add(a, 0, a0, 23, 23);  // above what decode takes
  prompt.Add(a, 1, a1, 5, 5);
  prompt.Add(b, 1, b1, 1, 9);
  ASSERT_TRUE(engine_->Attend(prompt.Request())->FirstError().ok());
  EmbeddedStep decode(seed_ + 1);
  decode.Add(a, 0, a0, 1, 1);
  decode.Add(b, 1, b1, 3, 0);
  const absl::StatusOr<AttendResult> result = engine_->Attend(decode.Request());
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t item = 0; item < 3; ++item) EXPECT_TRUE(prompt.IsRight(item)) << item << " " << seed_;
  for (size_t item = 0; item < 2; ++item) EXPECT_TRUE(decode.IsRight(item)) << item << " " << seed_;
  EXPECT_EQ(result->items[0].new_len, 24u);
  EXPECT_EQ(result->items[1].new_len, 9u);
  EXPECT_EQ(result->timing.launch_items, 2u);
}

TEST_P(EngineAttendTest, RowsOfAFailedItemBecomeNanAndItsNeighbourIsComputed) {
  const SequenceId a = engine_->Open("model", "me").value();
  const SequenceId b = engine_->Open("model", "me").value();
  KeptLayer a0, b0;
  EmbeddedStep step(seed_);
  step.Add(a, 0, a0, 2, 2).expected_len = 7;
  step.Add(b, 0, b0, 2, 2);
  const absl::StatusOr<AttendResult> result = engine_->Attend(step.Request());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ReasonOf(result->items[0].status), Reason::kLengthMismatch);
  EXPECT_EQ(FieldOf(result->items[0].status), "expected_lens[0]");
  EXPECT_TRUE(step.IsNan(0));
  EXPECT_TRUE(step.IsRight(1)) << seed_;
  EXPECT_EQ(engine_->stats().items_failed, 1u);
}

TEST_P(EngineAttendTest, OutComesInAnotherDtypeIfAskedFor) {
  const SequenceId id = engine_->Open("model", "me").value();
  const std::vector<float> row(kTestQHeads * kTestDim, 1.0f), key(kTestDim, 0.5f);
  std::vector<uint16_t> out(kTestQHeads * kTestDim);
  const AttendItem item = {.sequence = id, .q_len = 1, .kv_new_len = 1};
  const auto result = engine_->Attend({.items = {&item, 1},
                                       .q = BytesOf(row),
                                       .k = BytesOf(key),
                                       .v = BytesOf(key),
                                       .out = WritableBytesOf(out),
                                       .out_dtype = DType::kBFloat16});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->FirstError().ok()) << result->FirstError();
  EXPECT_THAT(out, ::testing::Each(FloatToBf16(0.5f)));
}

TEST_P(EngineAttendTest, RepeatedTokenComputesAgainAndAppendsOnce) {
  const SequenceId id = engine_->Open("model", "me").value();
  KeptLayer kept;
  EmbeddedStep step(seed_);
  step.Add(id, 0, kept, 2, 2).append_token = 77;
  for (const bool replayed : {false, true}) {
    const absl::StatusOr<AttendResult> result = engine_->Attend(step.Request());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->items[0].replayed, replayed);
    EXPECT_EQ(result->items[0].new_len, 2u);
    EXPECT_TRUE(step.IsRight(0)) << seed_;
  }
  EXPECT_EQ(engine_->stats().replayed_items, 1u);
}

TEST_P(EngineAttendTest, AppendsWithoutATokenAreNeverTakenForRepeats) {
  const SequenceId id = engine_->Open("model", "me").value();
  KeptLayer kept;
  EmbeddedStep first(seed_);
  first.Add(id, 0, kept, 1, 1);
  ASSERT_TRUE(engine_->Attend(first.Request())->FirstError().ok());
  KeptLayer again;
  EmbeddedStep second(seed_);
  second.Add(id, 0, again, 1, 1);
  EXPECT_EQ(ReasonOf(engine_->Attend(second.Request())->FirstError()), Reason::kLengthMismatch);
}

TEST_P(EngineAttendTest, LateAndCancelledCallsEndByTheirReasons) {
  const SequenceId id = engine_->Open("model", "me").value();
  KeptLayer kept;
  EmbeddedStep step(seed_);
  step.Add(id, 0, kept, 1, 1);
  AttendRequest late = step.Request();
  late.deadline = Clock::Real().Now() - kMillisecond;
  EXPECT_EQ(ReasonOf(engine_->Attend(late)->FirstError()), Reason::kDeadline);
  EXPECT_TRUE(step.IsNan(0));
  AttendRequest cancelled = step.Request();
  cancelled.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(ReasonOf(engine_->Attend(cancelled)->FirstError()), Reason::kCancelled);
  ASSERT_TRUE(engine_->Attend(step.Request())->FirstError().ok());
  EXPECT_TRUE(step.IsRight(0)) << seed_;
}

TEST_P(EngineAttendTest, ManyThreadsGetTheirOwnAnswers) {
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  constexpr int kThreads = 6;
  constexpr int kSteps = 60;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const SequenceId id = engine_->Open("model", "me").value();
      KeptLayer kept;
      for (uint64_t i = 0; i < kSteps; ++i) {
        EmbeddedStep step(seed_ + 1000 * t + i);
        step.Add(id, 1, kept, 1, 1);
        const absl::StatusOr<AttendResult> result = engine_->Attend(step.Request());
        if (result.ok() && result->FirstError().ok() && step.IsRight(0)) ++num_right;
      }
      ASSERT_TRUE(engine_->Close({id}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right.load(), kThreads * kSteps) << seed_;
  EXPECT_EQ(engine_->stats().items_completed, uint64_t{kThreads * kSteps});
}

TEST_P(EngineAttendTest, StopAnswersWhatWasAcceptedAndRefusesTheRest) {
  const SequenceId id = engine_->Open("model", "me").value();
  KeptLayer kept;
  EmbeddedStep step(seed_);
  step.Add(id, 0, kept, 1, 1);
  std::atomic<int> num_right{0};
  const AttendRequest request = step.Request();
  ASSERT_TRUE(engine_
                  ->Submit(request,
                           [&](const absl::StatusOr<AttendResult>& result) {
                             if (result.ok() && result->FirstError().ok()) ++num_right;
                           })
                  .ok());
  engine_->Stop();
  EXPECT_EQ(num_right.load(), 1);
  EXPECT_TRUE(step.IsRight(0)) << seed_;
  EXPECT_EQ(ReasonOf(engine_->Attend(request).status()), Reason::kDraining);
  EXPECT_EQ(ReasonOf(engine_->Open("model", "me").status()), Reason::kDraining);
  engine_->Stop();
}

TEST_P(EngineAttendTest, ACallbackMaySubmitButNotBlock) {
  const SequenceId id = engine_->Open("model", "me").value();
  KeptLayer kept;
  EmbeddedStep first(seed_);
  first.Add(id, 0, kept, 1, 1);
  EmbeddedStep second(seed_ + 1);
  second.Add(id, 0, kept, 1, 1);
  const AttendRequest second_request = second.Request();
  std::atomic<bool> done{false};
  Reason blocking = Reason::kOk;
  bool polled = true;
  ASSERT_TRUE(engine_
                  ->Submit(first.Request(),
                           [&](const absl::StatusOr<AttendResult>&) {
                             blocking = ReasonOf(engine_->Attend(second_request).status());
                             polled = engine_->Poll();
                             const auto finish = [&](const absl::StatusOr<AttendResult>&) {
                               done = true;
                               done.notify_one();
                             };
                             ASSERT_TRUE(engine_->Submit(second_request, finish).ok());
                           })
                  .ok());
  while (engine_->Poll()) {
  }
  if (GetParam() == Drive::kOwnThread) done.wait(false);
  EXPECT_TRUE(done);
  EXPECT_EQ(blocking, Reason::kInvalid);
  EXPECT_FALSE(polled);
  EXPECT_TRUE(second.IsRight(0)) << seed_;
}

TEST(EngineJoinTest, CallsThatWereSubmittedTogetherShareALaunch) {
  const std::unique_ptr<Engine> engine = TestEngine();
  const uint64_t seed = NewSeed();
  std::vector<KeptLayer> kept(3);
  std::vector<EmbeddedStep> steps;
  std::vector<uint32_t> launch_items;
  for (uint32_t i = 0; i < 3; ++i) {
    steps.emplace_back(seed + i).Add(engine->Open("model", "me").value(), i % 2, kept[i], 1, 1);
  }
  const uint64_t launches = engine->stats().launches;
  for (EmbeddedStep& step : steps) {
    ASSERT_TRUE(engine
                    ->Submit(step.Request(),
                             [&](const absl::StatusOr<AttendResult>& result) {
                               launch_items.push_back(result->timing.launch_items);
                             })
                    .ok());
  }
  EXPECT_TRUE(launch_items.empty());
  EXPECT_TRUE(engine->Poll());
  EXPECT_THAT(launch_items, ::testing::ElementsAre(3, 3, 3));
  EXPECT_EQ(engine->stats().launches, launches + 1);
  for (const EmbeddedStep& step : steps) EXPECT_TRUE(step.IsRight(0)) << seed;
  EXPECT_FALSE(engine->Poll());
}

TEST(EngineJoinTest, ABlockingCallComputesWhatOthersHaveSubmitted) {
  const std::unique_ptr<Engine> engine = TestEngine();
  const uint64_t seed = NewSeed();
  KeptLayer a, b;
  EmbeddedStep submitted(seed);
  submitted.Add(engine->Open("model", "me").value(), 0, a, 1, 1);
  EmbeddedStep blocking(seed + 1);
  blocking.Add(engine->Open("model", "me").value(), 1, b, 1, 1);
  bool done = false;
  ASSERT_TRUE(
      engine->Submit(submitted.Request(), [&](const absl::StatusOr<AttendResult>&) { done = true; })
          .ok());
  const absl::StatusOr<AttendResult> result = engine->Attend(blocking.Request());
  EXPECT_TRUE(done);
  EXPECT_EQ(result->timing.launch_items, 2u);
  EXPECT_TRUE(submitted.IsRight(0) && blocking.IsRight(0)) << seed;
}

// The second caller comes while the first computes, so that it is asleep when the first leaves.
// That it is asleep cannot be seen from outside; it has a millisecond for it, twenty times.
TEST(EngineJoinTest, WhoLeavesPassesTheTurnOnToOneWhoWaits) {
  const auto device = std::make_shared<test::FakeDevice>();
  const std::unique_ptr<Engine> engine = TestEngine({}, device);
  const uint64_t seed = NewSeed();
  const SequenceId ids[] = {engine->Open("model", "me").value(),
                            engine->Open("model", "me").value()};
  KeptLayer kept[2];
  for (uint64_t i = 0; i < 20; ++i) {
    EmbeddedStep first(seed + 2 * i), second(seed + 2 * i + 1);
    first.Add(ids[0], 0, kept[0], 1, 1);
    second.Add(ids[1], 0, kept[1], 1, 1);
    std::thread other;
    device->on_launch = [&](const Batch&) {
      if (other.joinable()) return;
      std::atomic<bool> started{false};
      other = std::thread([&] {
        const AttendRequest request = second.Request();
        started = true;
        EXPECT_TRUE(engine->Attend(request)->FirstError().ok());
      });
      const Nanos begun = Clock::Real().Now();
      while (!started || Clock::Real().Now() < begun + kMillisecond) {
      }
    };
    ASSERT_TRUE(engine->Attend(first.Request())->FirstError().ok());
    other.join();
    EXPECT_TRUE(first.IsRight(0) && second.IsRight(0)) << seed;
  }
}

TEST(EngineJoinTest, ALostDeviceFailsItsItemsAndIsToldOf) {
  const auto device = std::make_shared<test::FakeDevice>();
  const std::unique_ptr<Engine> engine = TestEngine({}, device);
  KeptLayer kept;
  EmbeddedStep step(NewSeed());
  step.Add(engine->Open("model", "me").value(), 0, kept, 1, 1);
  device->next_wait_error = MakeError(Reason::kDeviceLost, "", "gone");
  EXPECT_EQ(ReasonOf(engine->Attend(step.Request())->FirstError()), Reason::kDeviceLost);
  EXPECT_TRUE(step.IsNan(0));
  EXPECT_EQ(ReasonOf(engine->device_error()), Reason::kDeviceLost);
}

TEST(EngineJoinTest, TwoEnginesInOneProcessKeepTheirSequencesApart) {
  const uint64_t seed = NewSeed();
  const std::unique_ptr<Engine> engines[] = {TestEngine(),
                                             TestEngine({.drive = Drive::kOwnThread})};
  KeptLayer kept[2];
  SequenceId ids[2];
  for (int e : {0, 1}) ids[e] = engines[e]->Open("model", "me").value();
  for (uint64_t i = 0; i < 10; ++i) {
    for (int e : {0, 1}) {
      EmbeddedStep step(seed + 2 * i + static_cast<uint64_t>(e));
      step.Add(ids[e], 0, kept[e], 1, 1 + static_cast<uint32_t>(e));
      ASSERT_TRUE(engines[e]->Attend(step.Request())->FirstError().ok());
      EXPECT_TRUE(step.IsRight(0)) << seed;
    }
  }
  // A callback of one may block on the other.
  EmbeddedStep outer(seed + 100), inner(seed + 101);
  outer.Add(ids[0], 1, kept[0] = {}, 1, 1);
  inner.Add(ids[1], 1, kept[1] = {}, 1, 1);
  bool inner_is_right = false;
  ASSERT_TRUE(engines[0]
                  ->Submit(outer.Request(),
                           [&](const absl::StatusOr<AttendResult>&) {
                             inner_is_right =
                                 engines[1]->Attend(inner.Request()).ok() && inner.IsRight(0);
                           })
                  .ok());
  EXPECT_TRUE(engines[0]->Poll());
  EXPECT_TRUE(inner_is_right) << seed;
}

}  // namespace
}  // namespace attn::engine
