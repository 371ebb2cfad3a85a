// How work is cut: blocks of packed rows in prefill, aligned runs of leaves in decode. Pure
// arithmetic.
#pragma once

#include <cstdint>

#include "attention/score/visible_range.h"
#include "attn/base/hd.h"

namespace attn::plan {

// Keys of a decode leaf and of a prefill tile, at absolute multiples.
inline constexpr int64_t kLeafKeys = 256;

ATTN_HD constexpr int64_t DivideUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}

// Leaves [begin, end) that hold the keys; {0, 0} for none.
ATTN_HD constexpr score::Interval LeavesOf(score::Interval keys) {
  if (keys.empty()) return {0, 0};
  return {keys.begin / kLeafKeys, DivideUp(keys.end, kLeafKeys)};
}

// Runs of 2^log2_leaves leaves at absolute multiples of that number.
struct RunSplit {
  int log2_leaves = 0;
  int64_t first_run = 0;
  int64_t num_runs = 1;

  // The leaves of run `i`, cut to `leaves`.
  ATTN_HD constexpr score::Interval LeavesOfRun(score::Interval leaves, int64_t i) const {
    const int64_t run = first_run + i;
    return score::Intersect(leaves, {run << log2_leaves, (run + 1) << log2_leaves});
  }
};

// Runs of at most `leaves_per_run` leaves, of the largest power of two that fits, at least 1.
ATTN_HD constexpr RunSplit SplitIntoRuns(score::Interval leaves, int64_t leaves_per_run) {
  RunSplit split;
  while ((int64_t{2} << split.log2_leaves) <= leaves_per_run) ++split.log2_leaves;
  split.first_run = leaves.begin >> split.log2_leaves;
  split.num_runs =
      leaves.empty() ? 1 : ((leaves.end - 1) >> split.log2_leaves) + 1 - split.first_run;
  return split;
}

}  // namespace attn::plan
