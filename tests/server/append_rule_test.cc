// What an Attend item does to its sequence and what its rows see: append, read, replay, rewind,
// append-after, and that one bad item never hurts its neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AppendRuleTest : public ::testing::Test {
 protected:
  EngineFixture f;
};

// Every element of the rows [begin, end) is NaN, in out and in lse.
bool RowsArePoisoned(const AttendResult& result, size_t begin, size_t end, uint32_t row_floats) {
  const auto* out = reinterpret_cast<const float*>(result.out.data());
  const auto* lse = reinterpret_cast<const float*>(result.lse.data());
  for (size_t i = begin * row_floats; i < end * row_floats; ++i) {
    if (!std::isnan(out[i])) return false;
  }
  for (size_t i = begin; i < end; ++i) {
    if (!std::isnan(lse[i])) return false;
  }
  return true;
}

TEST_F(AppendRuleTest, AppendedTokensAreSeenByTheItemsOwnRows) {
  const uint64_t s = f.Open();
  const Call& call = f.Run(f.Attend({{.seq = s, .tokens = {3, 1, 4}, .q_len = 3}}));
  const auto& result = std::get<AttendResult>(call.result);
  ASSERT_EQ(ReasonAt(result, 0), Reason::kOk) << result.items[0].status;
  EXPECT_EQ(result.items[0].new_len, 3u);
  EXPECT_FALSE(result.items[0].replayed);
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({3}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({3, 1}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 2), f.ExpectedOut({3, 1, 4}));
}

TEST_F(AppendRuleTest, ReadOnlyRowsEndWhereTheKeysEnd) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2, 3, 4, 5}, .q_len = 0}});
  const Call& call = f.Run(f.Attend({{.seq = s, .q_len = 2}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2, 3, 4}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({1, 2, 3, 4, 5}));
}

TEST_F(AppendRuleTest, AnAppendWithoutRowsHasNoOutput) {
  const uint64_t s = f.Open();
  const AttendResult& result = f.RunAttend({{.seq = s, .tokens = {1, 2}, .q_len = 0}});
  EXPECT_EQ(ReasonAt(result, 0), Reason::kOk);
  EXPECT_EQ(result.items[0].new_len, 2u);
  EXPECT_TRUE(result.out.empty());
  EXPECT_TRUE(result.lse.empty());
}

TEST_F(AppendRuleTest, RowsOfAnEmptySequenceAreZero) {
  const uint64_t s = f.Open();
  const Call& call = f.Run(f.Attend({{.seq = s, .q_len = 2}}));
  EXPECT_EQ(f.OutRow(call, 0), 0.0f);
  const auto& result = std::get<AttendResult>(call.result);
  EXPECT_TRUE(std::isinf(reinterpret_cast<const float*>(result.lse.data())[0]));
}

TEST_F(AppendRuleTest, ARepeatIsComputedButNotAppendedAgain) {
  const uint64_t s = f.Open();
  const Item first{.seq = s, .tokens = {1, 2}, .q_len = 2};
  f.RunAttend({first});
  f.RunAttend({{.seq = s, .expected_len = 2, .tokens = {5}}});
  const Call& repeat = f.Run(f.Attend({first}));
  const auto& result = std::get<AttendResult>(repeat.result);
  ASSERT_EQ(ReasonAt(result, 0), Reason::kOk) << result.items[0].status;
  EXPECT_TRUE(result.items[0].replayed);
  EXPECT_EQ(result.items[0].new_len, 3u);
  EXPECT_FLOAT_EQ(f.OutRow(repeat, 1), f.ExpectedOut({1, 2})) << "keys up to its own end";
  EXPECT_EQ(f.engine->stats().replayed_items.value(), 1u);
  EXPECT_EQ(f.engine->stats().appended_tokens.value(), 3u);
}

TEST_F(AppendRuleTest, ARepeatOfAnAppendWithoutRowsNeedsNoLaunch) {
  const uint64_t s = f.Open();
  const Item first{.seq = s, .tokens = {1, 2}, .q_len = 0};
  f.RunAttend({first});
  const size_t launches = f.device->records.size();
  const AttendResult& result = f.RunAttend({first});
  EXPECT_EQ(ReasonAt(result, 0), Reason::kOk);
  EXPECT_TRUE(result.items[0].replayed);
  EXPECT_EQ(f.device->records.size(), launches);
}

TEST_F(AppendRuleTest, ARepeatWithAnotherCountIsInvalid) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2}, .append_token = 77}});
  const AttendResult& result = f.RunAttend({{.seq = s, .tokens = {1}, .append_token = 77}});
  EXPECT_EQ(ReasonAt(result, 0), Reason::kInvalid);
  EXPECT_EQ(FieldOf(result.items[0].status), "kv_new_lens[0]");
  EXPECT_EQ(result.items[0].new_len, 2u);
}

TEST_F(AppendRuleTest, AStrangersTokenAtAPastLengthIsALengthMismatch) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2}, .append_token = 77}});
  const AttendResult& result = f.RunAttend({{.seq = s, .tokens = {1, 2}, .append_token = 78}});
  EXPECT_EQ(ReasonAt(result, 0), Reason::kLengthMismatch);
  EXPECT_EQ(FieldOf(result.items[0].status), "expected_lens[0]");
  EXPECT_EQ(result.items[0].new_len, 2u) << "the actual length goes with the refusal";
}

TEST_F(AppendRuleTest, RewindCutsAndAppends) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2, 3, 4, 5, 6}, .q_len = 0}});
  const Call& call = f.Run(
      f.Attend({{.seq = s, .expected_len = 2, .tokens = {9}, .q_len = 1, .flags = kItemRewind}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2, 9}));
  EXPECT_EQ(f.LengthOf(s, 0), 3u);
}

TEST_F(AppendRuleTest, AppendAfterSeesTheKeysBeforeTheAppend) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2}, .q_len = 0}});
  const Item after{
      .seq = s, .expected_len = 2, .tokens = {9}, .q_len = 1, .flags = kItemAppendAfter};
  const Call& call = f.Run(f.Attend({after}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2}));
  EXPECT_EQ(f.LengthOf(s, 0), 3u);
  f.RunAttend({{.seq = s, .expected_len = 3, .tokens = {8}}});
  const Call& repeat = f.Run(f.Attend({after}));
  EXPECT_TRUE(std::get<AttendResult>(repeat.result).items[0].replayed);
  EXPECT_FLOAT_EQ(f.OutRow(repeat, 0), f.ExpectedOut({1, 2}));
}

TEST_F(AppendRuleTest, NonCausalRowsSeeEveryKey) {
  const uint64_t s = f.Open();
  const Call& call =
      f.Run(f.Attend({{.seq = s, .tokens = {1, 2, 3}, .q_len = 2, .flags = kItemNonCausal}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2, 3}));
}

TEST_F(AppendRuleTest, QStartMovesTheRows) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2, 3, 4}, .q_len = 0}});
  const Call& call = f.Run(f.Attend(
      {{.seq = s, .q_len = 2, .q_start = 1}, {.seq = s, .q_len = 1, .q_start = 4000000000u}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({1, 2, 3}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 2), f.ExpectedOut({1, 2, 3, 4}));
}

TEST_F(AppendRuleTest, RowsBeforeThePositionZeroAreDead) {
  const uint64_t s = f.Open();
  const Call& call = f.Run(f.Attend({{.seq = s, .tokens = {5}, .q_len = 3}}));
  EXPECT_EQ(f.OutRow(call, 0), 0.0f);
  EXPECT_EQ(f.OutRow(call, 1), 0.0f);
  EXPECT_FLOAT_EQ(f.OutRow(call, 2), f.ExpectedOut({5}));
}

TEST_F(AppendRuleTest, LayersHaveTheirOwnLengths) {
  const uint64_t s = f.Open();
  const Call& call = f.Run(
      f.Attend({{.seq = s, .layer = 0, .tokens = {1, 2}}, {.seq = s, .layer = 1, .tokens = {3}}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({3}));
  EXPECT_EQ(f.LengthOf(s, 0), 2u);
  EXPECT_EQ(f.LengthOf(s, 1), 1u);
  EXPECT_EQ(f.engine->cache_for_test().CommittedLengthOf(SequenceId(s)), 1u);
}

TEST_F(AppendRuleTest, OneBadItemNeverFailsItsMates) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  auto attend = f.Attend({{.seq = s, .tokens = {1}, .q_len = 2},
                          {.seq = t, .expected_len = 5, .tokens = {2}, .q_len = 2},
                          {.seq = 1234567890123456789u, .tokens = {3}},
                          {.seq = t, .layer = 1, .tokens = {4}}});
  auto& items = std::get<AttendCall>(attend->request).items;
  items.push_back(items.back());
  items.back().refused = MakeError(Reason::kInvalid, "layers[4]", "got 7, want 0..1");
  items.back().kv_new_len = 0;
  items.back().q_len = 0;
  const Call& call = f.Run(std::move(attend));
  const auto& result = std::get<AttendResult>(call.result);
  EXPECT_EQ(ReasonAt(result, 0), Reason::kOk);
  EXPECT_EQ(ReasonAt(result, 1), Reason::kLengthMismatch);
  EXPECT_EQ(ReasonAt(result, 2), Reason::kUnknownSequence);
  EXPECT_EQ(ReasonAt(result, 3), Reason::kOk);
  EXPECT_EQ(ReasonAt(result, 4), Reason::kInvalid);
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({1}));
  EXPECT_TRUE(RowsArePoisoned(result, 2, 5, EngineFixture::kDim));
  EXPECT_FLOAT_EQ(f.OutRow(call, 5), f.ExpectedOut({4}));
  EXPECT_EQ(result.items[1].new_len, 0u);
  EXPECT_EQ(result.items[2].new_len, 0u);
  EXPECT_EQ(f.engine->stats().items_failed.value(), 3u);
}

TEST_F(AppendRuleTest, TheSamePairTwiceReadsInOrder) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1, 2}, .q_len = 0}});
  const Call& call = f.Run(f.Attend({{.seq = s, .q_len = 1}, {.seq = s, .q_len = 1}}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 0), f.ExpectedOut({1, 2}));
  EXPECT_FLOAT_EQ(f.OutRow(call, 1), f.ExpectedOut({1, 2}));
}

TEST_F(AppendRuleTest, APairThatIsAppendedToOccursOnceUnderWhateverNames) {
  auto stream = std::make_shared<StreamScope>();
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  constexpr uint64_t kAlias = 7;
  stream->aliases[kAlias] = {SequenceId(s)};
  f.RunAttend({{.seq = s, .tokens = {1}, .q_len = 0}});
  uint32_t len = 1;
  for (const auto& [first, second] :
       {std::pair(kAlias, s), {s, kAlias}, {s, s}, {kAlias, kAlias}}) {
    const Item append{.seq = first, .expected_len = len, .tokens = {2}};
    for (const Item& again :
         {Item{.seq = second, .expected_len = len + 1, .tokens = {3}}, Item{.seq = second}}) {
      const Call& call = f.Run(f.Attend(
          {append, {.seq = t, .layer = 1, .q_len = 1}, again, {.seq = s, .layer = 1}}, stream));
      const auto& result = std::get<AttendResult>(call.result);
      EXPECT_EQ(ReasonAt(result, 0), Reason::kOk) << result.items[0].status;
      EXPECT_EQ(ReasonAt(result, 1), Reason::kOk);
      EXPECT_EQ(ReasonAt(result, 2), Reason::kInvalid);
      EXPECT_EQ(FieldOf(result.items[2].status), "sequence_ids[2]");
      EXPECT_THAT(std::string(result.items[2].status.message()),
                  AllOf(HasSubstr(absl::StrCat("got ", second, " with layer 0")),
                        HasSubstr("item 0"), HasSubstr("once")));
      EXPECT_EQ(ReasonAt(result, 3), Reason::kOk) << "another layer is another pair";
      EXPECT_TRUE(RowsArePoisoned(result, 2, 3, EngineFixture::kDim));
    }
    ++len;  // the first item of each round appends or repeats
    EXPECT_EQ(f.LengthOf(s, 0), len);
  }
  // A read first, an append second: the append would change what the request's reads see.
  const Call& call = f.Run(f.Attend(
      {{.seq = s}, {.seq = s}, {.seq = kAlias, .expected_len = len, .tokens = {4}}}, stream));
  const auto& result = std::get<AttendResult>(call.result);
  EXPECT_EQ(ReasonAt(result, 1), Reason::kOk);
  EXPECT_EQ(ReasonAt(result, 2), Reason::kInvalid);
  EXPECT_EQ(f.LengthOf(s, 0), len);
}

TEST_F(AppendRuleTest, OutAndLseTakeTheirDtypes) {
  const uint64_t s = f.Open();
  auto attend = f.Attend({{.seq = s, .tokens = {3}}, {.seq = 1u << 31, .tokens = {3}}});
  std::get<AttendCall>(attend->request).out_dtype = DType::kBFloat16;
  const Call& call = f.Run(std::move(attend));
  const auto& result = std::get<AttendResult>(call.result);
  EXPECT_EQ(result.out.size(), size_t{2} * EngineFixture::kDim * 2);
  EXPECT_EQ(LoadAsFloat(DType::kBFloat16, result.out.data(), 0), 3.0f);
  EXPECT_TRUE(std::isnan(LoadAsFloat(DType::kBFloat16, result.out.data(), EngineFixture::kDim)));
  EXPECT_EQ(result.lse.size(), 8u);
}

TEST_F(AppendRuleTest, AnItemBeyondTheLongestSequenceIsTooLarge) {
  const uint64_t s = f.Open();
  auto attend = f.Attend({{.seq = s, .expected_len = 4294967295u, .tokens = {3}}});
  EXPECT_NE(ReasonAt(std::get<AttendResult>(f.Run(std::move(attend)).result), 0), Reason::kOk);
  EXPECT_EQ(f.LengthOf(s, 0), 0u);
}

}  // namespace
}  // namespace attn::server
