// Appends that take several steps: others run in between, and until the last key is written nothing
// has happened to the layer, whatever ends the item.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

constexpr int kLong = 1000;

std::vector<int> Tokens(int count, int first = 1) {
  std::vector<int> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class LongAppendTest : public ::testing::Test {
 protected:
  // About 200 keys fit into a chunk of 5 ms; the engine learns it from a first append.
  LongAppendTest() {
    f.device->nanos_per_byte = 400;
    const uint64_t s = f.Open();
    f.RunAttend({{.seq = s, .tokens = Tokens(100), .q_len = 0}});
    f.Run(f.Make(CloseCall{.sequences = {{s}}}));
    f.device->records.clear();
    f.clock.Advance(kSecond);
  }
  ~LongAppendTest() override {
    EXPECT_TRUE(f.engine->cache_for_test().CheckInvariants().ok());
    f.engine->Stop();
    f.engine->CloseAllSequences();
    const kvcache::CacheStats stats = f.engine->cache_for_test().Stats();
    EXPECT_EQ(stats.pages.live + stats.pages.reserved, 0);
  }

  // What each launch has appended.
  std::vector<uint32_t> Slices() const {
    std::vector<uint32_t> slices;
    for (const test::LaunchRecord& record : f.device->records) {
      slices.insert(slices.end(), record.append_counts.begin(), record.append_counts.end());
    }
    return slices;
  }
  // What one more row sees in this layer.
  float Read(uint64_t sequence, uint32_t layer = 0) {
    return f.OutRow(f.Run(f.Attend({{.seq = sequence, .layer = layer}})), 0);
  }

  EngineFixture f;
};

TEST_F(LongAppendTest, IsWrittenInSlicesOfAChunkEachAndThenItsRowsSeeAllOfIt) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = Tokens(5), .q_len = 0}});
  f.device->records.clear();
  const Call& call =
      f.Run(f.Attend({{.seq = s, .expected_len = 5, .tokens = Tokens(kLong, 6), .q_len = 1}}));
  ASSERT_EQ(ReasonAt(std::get<AttendResult>(call.result), 0), Reason::kOk);
  EXPECT_NEAR(f.OutRow(call, 0), f.ExpectedOut(Tokens(5 + kLong)), 1e-3);
  const std::vector<uint32_t> slices = Slices();
  EXPECT_THAT(slices, SizeIs(testing::AllOf(testing::Ge(5u), Le(8u))));
  EXPECT_EQ(std::accumulate(slices.begin(), slices.end(), 0u), uint32_t{kLong});
  uint32_t end = 5;
  for (size_t i = 0; i + 1 < slices.size(); ++i) {
    end += slices[i];
    EXPECT_EQ(end % 16, 0u) << "cut at absolute multiples, slice " << i;
  }
  EXPECT_EQ(f.engine->stats().appended_tokens.value(), 100u + 5 + kLong);
}

TEST_F(LongAppendTest, DecodeOfOthersAndOfOtherLayersRunsInBetween) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  const uint64_t append = f.Push(f.Attend({{.seq = s, .tokens = Tokens(kLong), .q_len = 0}}));
  f.engine->StepByHand();
  for (uint32_t len = 0; len < 3; ++len) {
    const Nanos began = f.clock.Now();
    // The other layer of the same sequence takes pages of the same list.
    const uint64_t decode =
        f.Push(f.Attend({{.seq = t, .expected_len = len, .tokens = {7}},
                         {.seq = s, .layer = 1, .expected_len = len, .tokens = {9}}}));
    while (f.Answer(decode) == nullptr) ASSERT_TRUE(f.engine->StepByHand());
    ASSERT_EQ(f.Answer(append), nullptr);
    EXPECT_LE(f.clock.Now() - began, 2 * f.engine->options().chunk_time);
    EXPECT_EQ(ReasonAt(f.AttendAnswer(decode), 1), Reason::kOk);
    EXPECT_EQ(f.LengthOf(s, 0), 0u) << "not before it is whole";
    f.engine->StepByHand();
  }
  f.Drain();
  EXPECT_EQ(f.AttendAnswer(append).items[0].new_len, uint32_t{kLong});
  EXPECT_NEAR(Read(s), f.ExpectedOut(Tokens(kLong)), 1e-3);
  EXPECT_FLOAT_EQ(Read(s, 1), f.ExpectedOut({9, 9, 9}));
}

TEST_F(LongAppendTest, CancelledOrLateBetweenSlicesItHasNotHappenedAndTheRepeatAppends) {
  for (const bool is_late : {false, true}) {
    const uint64_t s = f.Open();
    f.RunAttend({{.seq = s, .tokens = {3, 1, 4}, .q_len = 0}});
    const Item item{.seq = s, .expected_len = 3, .tokens = Tokens(kLong), .q_len = 1};
    auto call = f.Attend({item});
    const auto flag = call->cancelled;
    if (is_late) call->deadline = f.clock.Now() + 8 * kMillisecond;
    const uint64_t id = f.Push(std::move(call));
    f.engine->StepByHand();
    f.engine->StepByHand();
    EXPECT_EQ(f.Answer(id), nullptr);
    if (!is_late) flag->store(true);
    f.device->records.clear();
    f.Drain();
    EXPECT_THAT(Slices(), IsEmpty());
    const AttendResult& result = f.AttendAnswer(id);
    EXPECT_EQ(ReasonAt(result, 0), is_late ? Reason::kDeadline : Reason::kCancelled);
    EXPECT_EQ(result.items[0].new_len, 3u);
    EXPECT_EQ(f.engine->cache_for_test().Stats().pages.reserved, 0);
    EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({3, 1, 4}));
    EXPECT_FALSE(f.RunAttend({item}).items[0].replayed);
    EXPECT_EQ(f.LengthOf(s, 0), 3u + kLong);
  }
}

TEST_F(LongAppendTest, AFailedSliceRollsBackAllOfThem) {
  const uint64_t s = f.Open();
  const Item item{.seq = s, .tokens = Tokens(kLong), .q_len = 0};
  const uint64_t id = f.Push(f.Attend({item}));
  f.engine->StepByHand();
  f.device->next_launch_error = MakeError(Reason::kInternal, "", "the launch failed");
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(id), 0), Reason::kInternal);
  EXPECT_EQ(f.AttendAnswer(id).items[0].new_len, 0u);
  EXPECT_FALSE(f.RunAttend({item}).items[0].replayed);
  EXPECT_NEAR(Read(s), f.ExpectedOut(Tokens(kLong)), 1e-3);
}

TEST_F(LongAppendTest, ARewindThatIsCancelledEndsWhereItCut) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = Tokens(10), .q_len = 0}});
  auto call = f.Attend(
      {{.seq = s, .expected_len = 6, .tokens = Tokens(kLong), .q_len = 0, .flags = kItemRewind}});
  const auto flag = call->cancelled;
  const uint64_t id = f.Push(std::move(call));
  f.engine->StepByHand();
  flag->store(true);
  f.Drain();
  EXPECT_EQ(f.AttendAnswer(id).items[0].new_len, 6u);
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut(Tokens(6)));
}

TEST_F(LongAppendTest, ARepeatWritesNothingAndWithoutRowsNeedsNoLaunch) {
  const uint64_t s = f.Open();
  const Item item{.seq = s, .tokens = Tokens(kLong), .q_len = 0};
  f.RunAttend({item});
  f.device->records.clear();
  EXPECT_TRUE(f.RunAttend({item}).items[0].replayed);
  EXPECT_THAT(f.device->records, IsEmpty());
  Item with_rows = item;
  with_rows.q_len = 1;
  const Call& repeat = f.Run(f.Attend({with_rows}));
  EXPECT_NEAR(f.OutRow(repeat, 0), f.ExpectedOut(Tokens(kLong)), 1e-3);
  EXPECT_THAT(Slices(), IsEmpty());
  EXPECT_EQ(f.engine->stats().replayed_items.value(), 2u);
}

// The pages that both share are copied by the first slice; the parent's keys stay what they were.
TEST_F(LongAppendTest, OnAForkCopiesOnceAndLeavesTheParentAlone) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = Tokens(6), .q_len = 0},
               {.seq = s, .layer = 1, .tokens = Tokens(6), .q_len = 0}});
  ForkCall fork;
  fork.items.resize(1);
  fork.items[0].parent.value = s;
  fork.items[0].num_children = 1;
  const uint64_t child = std::get<ForkResult>(f.Run(f.Make(fork)).result).children[0].value;
  const uint64_t append =
      f.Push(f.Attend({{.seq = child, .expected_len = 6, .tokens = Tokens(kLong, 7), .q_len = 0}}));
  f.engine->StepByHand();
  f.RunAttend({{.seq = s, .expected_len = 6, .tokens = {50}, .q_len = 0},
               {.seq = child, .layer = 1, .expected_len = 6, .tokens = {60}, .q_len = 0}});
  EXPECT_EQ(f.AttendAnswer(append).items[0].new_len, 6u + kLong);
  EXPECT_NEAR(Read(child), f.ExpectedOut(Tokens(6 + kLong)), 1e-3);
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({1, 2, 3, 4, 5, 6, 50}));
  EXPECT_FLOAT_EQ(Read(child, 1), f.ExpectedOut({1, 2, 3, 4, 5, 6, 60}));
}

TEST_F(LongAppendTest, ACloseWaitsForItAndAStoppingEngineRollsItBack) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  const uint64_t append = f.Push(f.Attend({{.seq = s, .tokens = Tokens(kLong), .q_len = 0}}));
  const uint64_t close = f.Push(f.Make(CloseCall{.sequences = {{s}}}));
  f.Drain();
  EXPECT_THAT(f.sink.order(), testing::Contains(close));
  EXPECT_EQ(ReasonAt(f.AttendAnswer(append), 0), Reason::kOk);

  FixtureOptions hasty;
  hasty.engine.drain_grace = 0;
  EngineFixture g(hasty);
  g.device->nanos_per_byte = 400;
  const uint64_t u = g.Open();
  g.RunAttend({{.seq = u, .tokens = Tokens(100), .q_len = 0}});
  const uint64_t last =
      g.Push(g.Attend({{.seq = u, .expected_len = 100, .tokens = Tokens(kLong), .q_len = 0}}));
  g.engine->StepByHand();
  g.engine->Stop();
  EXPECT_EQ(ReasonAt(g.AttendAnswer(last), 0), Reason::kDraining);
  EXPECT_EQ(g.AttendAnswer(last).items[0].new_len, 100u);
  EXPECT_EQ(g.engine->cache_for_test().Stats().pages.reserved, 0);
  EXPECT_EQ(f.LengthOf(t, 0), 0u);
}

}  // namespace
}  // namespace attn::server
