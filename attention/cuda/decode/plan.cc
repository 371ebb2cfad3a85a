#include "attention/cuda/decode/plan.h"

#include <algorithm>

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

// The leaves that rows of an entry see; none without rows.
Extents LeavesOf(const LaunchScore& score, const EntryRecord& entry) {
  if (entry.q_len <= 0) return {};
  const score::Interval keys =
      score.RangeOf(entry).KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1);
  if (keys.empty()) return {};
  return {keys.begin / kLeafKeys, (keys.end + kLeafKeys - 1) / kLeafKeys};
}

Extents ExtentsOf(const Extents& leaves, int extent_log2) {
  return {leaves.first >> extent_log2,
          (leaves.last + (int64_t{1} << extent_log2) - 1) >> extent_log2};
}

// Where the extents of a row stand in the tree of merges.
struct Span {
  int log2 = 0;
  int64_t first_position = 0;  // of the first extent
};

// The least span whose tree merges extents [first, last) as the tree over all positions does. A
// missing sibling passes the other through, so that of the two halves only the ends that meet
// count.
Span SpanOf(int64_t first, int64_t last) {
  int top = 0;
  while ((first >> top) != ((last - 1) >> top)) ++top;
  if (top == 0) return {};
  const int64_t middle = ((last - 1) >> (top - 1)) << (top - 1);
  const int64_t longest = std::max(middle - first, last - middle);
  int half_log2 = 0;
  while ((int64_t{1} << half_log2) < longest) ++half_log2;
  return {half_log2 + 1, (int64_t{1} << half_log2) - (middle - first)};
}

// The least power of two that is not below value, at least 1.
int16_t PowerOfTwoFrom(int64_t value) {
  int16_t power = 1;
  while (power < value) power = static_cast<int16_t>(2 * power);
  return power;
}

int32_t RowBlocksOf(int32_t num_rows) { return (num_rows + kDecodeRows - 1) / kDecodeRows; }

// Fills a plan whose extents are 2^extent_log2 leaves.
struct Planner {
  DecodePlan& plan;
  const LaunchScore& score;
  absl::Span<const EntryRecord> entries;
  int32_t group_size;
  int32_t leaves;  // of an extent
  // Where the next item with that many used leaves goes: long ones start first, so that the last to
  // end are short.
  int32_t next_item[(1 << kMaxExtentLog2) + 1] = {};

  int32_t RowsOf(const EntryRecord& entry) const { return entry.q_len * group_size; }

  Extents ExtentsOf(const EntryRecord& entry) const {
    const Extents extents = cuda::ExtentsOf(LeavesOf(score, entry), plan.extent_log2);
    // Rows without keys have results too.
    return extents.count() == 0 ? Extents{0, 1} : extents;
  }

  // Of the leaves of an extent those that hold keys.
  int32_t UsedLeaves(const EntryRecord& entry, int64_t extent) const {
    const int64_t last_leaf = (int64_t{entry.kv_end} + kLeafKeys - 1) / kLeafKeys;
    return static_cast<int32_t>(std::clamp<int64_t>(last_leaf - extent * leaves, 0, leaves));
  }

  // All but the last extent of an entry are full.
  void PlaceItems() {
    int32_t count[(1 << kMaxExtentLog2) + 1] = {};
    for (const EntryRecord& entry : entries) {
      const Extents extents = ExtentsOf(entry);
      const int32_t row_blocks = RowBlocksOf(RowsOf(entry));
      count[leaves] += static_cast<int32_t>(extents.count() - 1) * row_blocks;
      count[UsedLeaves(entry, extents.last - 1)] += row_blocks;
    }
    int32_t total = 0;
    for (int32_t used = leaves; used >= 0; --used) {
      next_item[used] = total;
      total += count[used];
    }
    plan.items.resize(static_cast<size_t>(total));
  }

  void AddEntry(int32_t index, const EntryRecord& entry) {
    const Extents extents = ExtentsOf(entry);
    const int32_t num_rows = RowsOf(entry);
    const int32_t row_blocks = RowBlocksOf(num_rows);
    const bool is_split = extents.count() > 1;
    const int32_t first_partial = plan.num_partials;
    const auto count = static_cast<int32_t>(extents.count());
    for (int32_t number = 0; number < count; ++number) {
      const int64_t extent = extents.first + number;
      const int32_t used = UsedLeaves(entry, extent);
      // Blocks of the same keys are neighbours, so that the second finds them in L2.
      for (int32_t block = 0; block < row_blocks; ++block) {
        plan.items[static_cast<size_t>(next_item[used]++)] = {
            entry.page_table,
            index,
            entry.kv_end,
            static_cast<int32_t>(extent * leaves),
            is_split ? first_partial + block * count + number : -1,
            PowerOfTwoFrom(used),
            static_cast<int16_t>(block)};
      }
    }
    if (!is_split) return;
    plan.num_partials += row_blocks * count;
    for (int32_t block = 0; block < row_blocks; ++block) {
      AddCombines(index, block, std::min(kDecodeRows, num_rows - block * kDecodeRows), extents,
                  first_partial + block * count);
    }
  }

  void AddCombines(int32_t entry, int32_t row_block, int32_t num_rows, const Extents& extents,
                   int32_t first_partial) {
    CombineItem item;
    item.entry = entry;
    item.first_partial = first_partial;
    const Span span = SpanOf(extents.first, extents.last);
    ATTN_CHECK(span.log2 <= kMaxSpanLog2, extents.count(), " extents of one row");
    item.span_log2 = static_cast<int16_t>(span.log2);
    item.first_position = static_cast<int16_t>(span.first_position);
    item.num_partials = static_cast<int16_t>(extents.count());
    item.row_block = static_cast<int16_t>(row_block);
    if (span.log2 <= 3) {
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

void PlanDecodeWithExtent(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                          absl::Span<const EntryRecord> entries, int extent_log2,
                          DecodePlan* plan) {
  plan->combines.clear();
  plan->num_partials = 0;
  plan->extent_log2 = extent_log2;
  Planner planner{*plan, score, entries, num_q_heads / pool.num_kv_heads, 1 << extent_log2};
  planner.PlaceItems();
  int32_t most_rows = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    most_rows = std::max(most_rows, planner.RowsOf(entries[i]));
    planner.AddEntry(static_cast<int32_t>(i), entries[i]);
  }
  plan->rows_per_block = most_rows <= 4 ? 4 : kDecodeRows;
}

void PlanDecode(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                absl::Span<const EntryRecord> entries, int num_sms, DecodePlan* plan) {
  const int32_t group_size = num_q_heads / pool.num_kv_heads;
  int64_t items[kMaxExtentLog2] = {};  // by extent_log2
  for (const EntryRecord& entry : entries) {
    const Extents leaves = LeavesOf(score, entry);
    const int32_t row_blocks = RowBlocksOf(entry.q_len * group_size);
    for (int log2 = 0; log2 < kMaxExtentLog2; ++log2) {
      items[log2] += ExtentsOf(leaves, log2).count() * row_blocks;
    }
  }
  int extent_log2 = 0;
  while (extent_log2 < kMaxExtentLog2 && items[extent_log2] * pool.num_kv_heads > 2 * num_sms) {
    ++extent_log2;
  }
  PlanDecodeWithExtent(pool, score, num_q_heads, entries, extent_log2, plan);
}

}  // namespace attn::cuda
