#include "attention/cuda/decode/plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "attention/cuda/decode/config.h"
#include "attn/base/check.h"

namespace attn::cuda {
namespace {

// Extents [first, last) of an entry, numbered from position 0.
struct Extents {
  int64_t first = 0;
  int64_t last = 0;
  int64_t count() const { return last - first; }
};

Extents ExtentsOf(const LaunchScore& score, const EntryRecord& entry, int extent_log2) {
  if (entry.q_len <= 0) return {};
  const score::Interval keys =
      score.RangeOf(entry).KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1);
  if (keys.empty()) return {};
  const int64_t extent_keys = int64_t{kLeafKeys} << extent_log2;
  return {keys.begin / extent_keys, (keys.end + extent_keys - 1) / extent_keys};
}

// Log2 of the least aligned span that holds positions [first, last), last > first.
int SpanLog2(int64_t first, int64_t last) {
  int log2 = 0;
  while ((first >> log2) != ((last - 1) >> log2)) ++log2;
  return log2;
}

// The least power of two that is not below value, at least 1.
int16_t PowerOfTwoFrom(int64_t value) {
  int16_t power = 1;
  while (power < value) power = static_cast<int16_t>(2 * power);
  return power;
}

struct Planner {
  DecodePlan plan;
  // Items by the leaves they really have: long ones start first, so that the last to end are short.
  std::vector<DecodeItem> by_leaves[(1 << kMaxExtentLog2) + 1];

  void AddEntry(int32_t index, const EntryRecord& entry, int32_t num_rows, const Extents& extents) {
    const int64_t last_leaf = (int64_t{entry.kv_end} + kLeafKeys - 1) / kLeafKeys;
    const int32_t leaves = 1 << plan.extent_log2;
    const int32_t row_blocks = (num_rows + kDecodeRows - 1) / kDecodeRows;
    const bool is_split = extents.count() > 1;
    const int32_t first_partial = plan.num_partials;
    const auto count = static_cast<int32_t>(extents.count());
    for (int64_t extent = extents.first; extent < extents.last; ++extent) {
      const auto number = static_cast<int32_t>(extent - extents.first);
      const int64_t used = std::clamp<int64_t>(last_leaf - extent * leaves, 0, leaves);
      // Blocks of the same keys are neighbours, so that the second finds them in L2.
      for (int32_t block = 0; block < row_blocks; ++block) {
        by_leaves[used].push_back({entry.page_table, index, entry.kv_end,
                                   static_cast<int32_t>(extent * leaves),
                                   is_split ? first_partial + block * count + number : -1,
                                   PowerOfTwoFrom(used), static_cast<int16_t>(block)});
      }
    }
    if (!is_split) return;
    plan.num_partials += row_blocks * count;
    for (int32_t block = 0; block < row_blocks; ++block) {
      AddCombines(index, block, std::min(kDecodeRows, num_rows - block * kDecodeRows), extents,
                  first_partial + block * count);
    }
  }

  void CollectItems() {
    for (size_t i = std::size(by_leaves); i-- > 0;) {
      plan.items.insert(plan.items.end(), by_leaves[i].begin(), by_leaves[i].end());
    }
  }

  void AddCombines(int32_t entry, int32_t row_block, int32_t num_rows, const Extents& extents,
                   int32_t first_partial) {
    CombineItem item;
    item.entry = entry;
    item.first_partial = first_partial;
    const int span_log2 = SpanLog2(extents.first, extents.last);
    ATTN_CHECK(span_log2 <= kMaxSpanLog2, extents.count(), " extents of one row");
    item.span_log2 = static_cast<int16_t>(span_log2);
    item.first_position = static_cast<int16_t>(extents.first & ((int64_t{1} << span_log2) - 1));
    item.num_partials = static_cast<int16_t>(extents.count());
    item.row_block = static_cast<int16_t>(row_block);
    if (span_log2 <= 3) {
      plan.combines.push_back(item);
      return;
    }
    for (int32_t row = 0; row < num_rows; ++row) {
      item.row = static_cast<int16_t>(row);
      plan.combines.push_back(item);
    }
  }
};

}  // namespace

DecodePlan PlanDecodeWithExtent(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                                absl::Span<const EntryRecord> entries, int extent_log2) {
  const int32_t group_size = num_q_heads / pool.num_kv_heads;
  Planner planner;
  planner.plan.extent_log2 = extent_log2;
  int32_t most_rows = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int32_t num_rows = entries[i].q_len * group_size;
    most_rows = std::max(most_rows, num_rows);
    Extents extents = ExtentsOf(score, entries[i], extent_log2);
    if (extents.count() == 0) extents = {0, 1};  // rows without keys have results too
    planner.AddEntry(static_cast<int32_t>(i), entries[i], num_rows, extents);
  }
  planner.CollectItems();
  planner.plan.rows_per_block = most_rows <= 4 ? 4 : kDecodeRows;
  return std::move(planner.plan);
}

DecodePlan PlanDecode(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                      absl::Span<const EntryRecord> entries, int num_sms) {
  const int32_t group_size = num_q_heads / pool.num_kv_heads;
  int extent_log2 = 0;
  for (; extent_log2 < kMaxExtentLog2; ++extent_log2) {
    int64_t ctas = 0;
    for (const EntryRecord& entry : entries) {
      const int32_t row_blocks = (entry.q_len * group_size + kDecodeRows - 1) / kDecodeRows;
      ctas += ExtentsOf(score, entry, extent_log2).count() * row_blocks * pool.num_kv_heads;
    }
    if (ctas <= 2 * num_sms) break;
  }
  return PlanDecodeWithExtent(pool, score, num_q_heads, entries, extent_log2);
}

}  // namespace attn::cuda
