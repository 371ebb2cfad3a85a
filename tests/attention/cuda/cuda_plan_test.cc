// Plans of device launches: every row of every head is computed exactly once, extents tile the
// keys, boxes tile pages, and copies that depend on each other are kept apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "attention/cuda/append/copy_pages.h"
#include "attention/cuda/decode/plan.h"
#include "attention/cuda/forward/launch.h"
#include "attention/cuda/forward/plan.h"
#include "attention/cuda/step_share.h"
#include "attention/cuda/tensor_map.h"

namespace attn::cuda {
namespace {

constexpr KvPool kPool{nullptr, 64, 1, 2, 16};

EntryRecord Entry(int32_t q_len, int32_t kv_end, int16_t heads = 2) {
  EntryRecord entry;
  entry.q_len = q_len;
  entry.kv_end = kv_end;
  entry.q_start = kv_end - q_len;
  entry.kv_head_end = heads;
  return entry;
}

TEST(ForwardPlanTest, EveryQueryOfEveryHeadIsInExactlyOneItem) {
  for (const int num_q_heads : {2, 6, 10, 64}) {
    const int queries = 128 / (num_q_heads / 2);
    const std::vector<EntryRecord> entries = {Entry(1, 5), Entry(300, 4000), Entry(129, 129),
                                              Entry(0, 7), Entry(64, 64, 1)};
    std::map<std::tuple<int, int, int>, int> count;
    for (const ForwardItem& item : PlanForward(kPool, LaunchScore(), num_q_heads, entries)) {
      const EntryRecord& entry = entries[item.entry];
      for (int i = item.first_query; i < std::min(item.first_query + queries, entry.q_len); ++i) {
        ++count[{item.entry, item.kv_head, i}];
      }
    }
    size_t expected = 0;
    for (const EntryRecord& entry : entries) expected += entry.q_len * entry.kv_head_end;
    EXPECT_EQ(count.size(), expected);
    for (const auto& [row, times] : count) EXPECT_EQ(times, 1);
  }
}

TEST(ForwardPlanTest, LongTilesComeFirst) {
  const std::vector<EntryRecord> entries = {Entry(512, 512), Entry(1024, 4096)};
  int64_t last = INT64_MAX;
  for (const ForwardItem& item : PlanForward(kPool, LaunchScore(), 2, entries)) {
    const EntryRecord& entry = entries[item.entry];
    const int64_t keys = entry.q_start + item.first_query + 128;
    EXPECT_LE((keys + 127) / 128, last);
    last = (keys + 127) / 128;
  }
}

TEST(DecodePlanTest, ExtentsTileTheVisibleKeysOfEveryRowBlock) {
  for (int extent_log2 = 0; extent_log2 <= kMaxExtentLog2; ++extent_log2) {
    LaunchScore score;
    score.range.left = 3000;
    const std::vector<EntryRecord> entries = {Entry(1, 1), Entry(16, 5000), Entry(3, 257),
                                              Entry(1, 0)};
    const DecodePlan plan = PlanDecodeWithExtent(kPool, score, 12, entries, extent_log2);
    std::map<std::pair<int, int>, std::set<int>> leaves;
    std::set<int> partials;
    for (const DecodeItem& item : plan.items) {
      EXPECT_EQ(item.first_leaf % item.num_leaves, 0);
      for (int i = 0; i < item.num_leaves; ++i) {
        EXPECT_TRUE((leaves[{item.entry, item.row_block}].insert(item.first_leaf + i).second));
      }
      if (item.partial >= 0) {
        EXPECT_TRUE(partials.insert(item.partial).second);
        EXPECT_LT(item.partial, plan.num_partials);
      }
    }
    EXPECT_EQ(leaves.size(), 1u + 12u + 3u + 1u);  // blocks of 8 of 6, 96, 18 and 6 rows
    const std::set<int>& block = leaves[{1, 11}];
    EXPECT_LE(*block.begin() * kLeafKeys, 4984 - 3000);
    EXPECT_GE((*block.rbegin() + 1) * kLeafKeys, 5000);
  }
}

TEST(DecodePlanTest, CombinesCoverEveryPartialRowOnce) {
  const std::vector<EntryRecord> entries = {Entry(1, 900), Entry(5, 70000), Entry(1, 100)};
  const DecodePlan plan = PlanDecodeWithExtent(kPool, LaunchScore(), 6, entries, 0);
  std::map<std::pair<int, int>, int> rows;  // (partial, row) -> times
  for (const CombineItem& item : plan.combines) {
    EXPECT_LE(item.first_position + item.num_partials, 1 << item.span_log2);
    if (item.row < 0) {
      EXPECT_LE(item.span_log2, 3);
    }
    for (int i = 0; i < item.num_partials; ++i) {
      const int first = item.row < 0 ? 0 : item.row;
      const int last = item.row < 0 ? 8 : item.row + 1;
      for (int row = first; row < last; ++row) ++rows[{item.first_partial + i, row}];
    }
  }
  for (const auto& [row, times] : rows) EXPECT_EQ(times, 1);
  // 4 extents of one block; 274 extents of a block of 8 rows and one of 7.
  EXPECT_EQ(rows.size(), 4u * 8 + 274u * 15);
}

// The merges of extents [first, last) in an aligned span, written out: "(3 4)"; a missing sibling
// passes the other through. `shift` is taken off every number.
std::string Merges(int64_t begin, int64_t length, int64_t first, int64_t last, int64_t shift) {
  if (begin + length <= first || begin >= last) return "";
  if (length == 1) return std::to_string(begin - shift);
  const std::string left = Merges(begin, length / 2, first, last, shift);
  const std::string right = Merges(begin + length / 2, length / 2, first, last, shift);
  if (left.empty() || right.empty()) return left + right;
  return "(" + left + " " + right + ")";
}

TEST(DecodePlanTest, ShortSpansMergeLikeTheTreeOverAllPositions) {
  std::mt19937_64 random(17);
  for (int i = 0; i < 400; ++i) {
    // Windows across the borders of large powers of two among them.
    LaunchScore score;
    score.range.left = 256 * static_cast<int64_t>(random() % 40) + 300;
    const int64_t border = int64_t{1} << (10 + random() % 11);
    const int64_t last_key =
        std::max<int64_t>(600, border + static_cast<int64_t>(random() % 8000) - 2000);
    const std::vector<EntryRecord> entries = {Entry(1, static_cast<int32_t>(last_key))};
    const DecodePlan plan = PlanDecodeWithExtent(kPool, score, 2, entries, 0);
    ASSERT_FALSE(plan.combines.empty());
    const CombineItem& item = plan.combines[0];
    EXPECT_LE(item.span_log2, 7) << "the span grows with the window only";
    const int64_t first = std::max<int64_t>(0, last_key - 1 - score.range.left) / kLeafKeys;
    const int64_t last = (last_key + kLeafKeys - 1) / kLeafKeys;
    ASSERT_EQ(item.num_partials, last - first);
    EXPECT_EQ(Merges(0, 1 << item.span_log2, item.first_position,
                     item.first_position + item.num_partials, item.first_position),
              Merges(0, int64_t{1} << 20, first, last, first));
  }
}

TEST(DecodePlanTest, FewRowsGetShortExtentsAndManyLongOnes) {
  EXPECT_EQ(PlanDecode(kPool, LaunchScore(), 8, {Entry(1, 8192)}, 132).extent_log2, 0);
  const std::vector<EntryRecord> many(128, Entry(1, 8192));
  EXPECT_EQ(PlanDecode(kPool, LaunchScore(), 8, many, 132).extent_log2, kMaxExtentLog2);
}

TEST(DecodePlanTest, AFilledPlanFilledAgainHoldsNothingOfTheFormerBatch) {
  const std::vector<EntryRecord> former = {Entry(16, 90000), Entry(3, 257), Entry(1, 0)};
  const std::vector<EntryRecord> entries = {Entry(1, 900), Entry(5, 70000), Entry(1, 100)};
  DecodePlan plan;
  PlanDecode(kPool, LaunchScore(), 6, former, 132, &plan);
  PlanDecode(kPool, LaunchScore(), 6, entries, 132, &plan);
  const DecodePlan fresh = PlanDecode(kPool, LaunchScore(), 6, entries, 132);
  const auto places = [](const DecodePlan& p) {
    std::vector<std::vector<int>> all;
    for (const DecodeItem& i : p.items) {
      all.push_back({i.entry, i.kv_end, i.first_leaf, i.partial, i.num_leaves, i.row_block});
    }
    for (const CombineItem& i : p.combines) {
      all.push_back({i.entry, i.first_partial, i.num_partials, i.first_position, i.row});
    }
    return all;
  };
  EXPECT_EQ(places(plan), places(fresh));
  EXPECT_EQ(plan.num_partials, fresh.num_partials);
  EXPECT_EQ(plan.rows_per_block, fresh.rows_per_block);
  EXPECT_EQ(plan.extent_log2, fresh.extent_log2);
}

// Measured on an H200: the step time is flat within 3 % over these ranges.
TEST(StepShareTest, PrefillGetsTheSmsThatWereBestBesideDecode) {
  constexpr double kGiB = 1 << 30;
  struct Measured {
    StepWork work;
    int least, most;
  };
  for (const Measured& m : {
           Measured{{1.0 * kGiB, 3.4e10}, 48, 64},         // 32 x 8K, 2K rows of 2K keys
           Measured{{1.0 * kGiB, 6.6e10}, 60, 80},         // 512 rows of 8K keys
           Measured{{1.0 * kGiB, 5.15e11}, 108, 120},      // 2K rows of 16K keys
           Measured{{1.0 / 16 * kGiB, 3.4e10}, 108, 128},  // 8 x 2K, 2K rows of 2K keys
           Measured{{4.0 * kGiB, 3.4e10}, 16, 80},         // 128 x 8K, 2K rows of 2K keys
       }) {
    const int ctas = ForwardCtasBesideDecode(m.work, 132);
    EXPECT_GE(ctas, m.least) << m.work.decode_bytes << " bytes, " << m.work.forward_flops;
    EXPECT_LE(ctas, m.most) << m.work.decode_bytes << " bytes, " << m.work.forward_flops;
  }
}

TEST(StepShareTest, AloneEachHasTheWholeDevice) {
  EXPECT_EQ(ForwardCtasBesideDecode({0, 1e10}, 132), 132);
  EXPECT_EQ(ForwardCtasBesideDecode({1e9, 0}, 132), 132);
}

TEST(TensorMapTest, BoxesDividePagesAndTiles) {
  EXPECT_EQ(BoxRows(1, 128), 1);
  EXPECT_EQ(BoxRows(8, 128), 8);
  EXPECT_EQ(BoxRows(12, 128), 4);
  EXPECT_EQ(BoxRows(48, 128), 16);
  EXPECT_EQ(BoxRows(64, 128), 64);
  EXPECT_EQ(BoxRows(4096, 128), 128);
  EXPECT_EQ(BoxRows(24, 16), 8);
}

TEST(CopyPagesTest, CopiesThatDependOnEachOtherAreInDifferentRuns) {
  const auto copy = [](int32_t source, int32_t target) {
    return PageCopyRecord{source, target, nullptr};
  };
  using Runs = std::vector<int>;
  EXPECT_EQ(IndependentRuns({}), Runs());
  EXPECT_EQ(IndependentRuns({copy(1, 2), copy(1, 3), copy(4, 5)}), Runs({3}));
  EXPECT_EQ(IndependentRuns({copy(1, 2), copy(2, 3)}), Runs({1, 1}));  // reads what was written
  EXPECT_EQ(IndependentRuns({copy(1, 2), copy(3, 1)}), Runs({1, 1}));  // writes what was read
  EXPECT_EQ(IndependentRuns({copy(1, 2), copy(3, 2), copy(4, 5)}), Runs({1, 2}));
}

}  // namespace
}  // namespace attn::cuda
