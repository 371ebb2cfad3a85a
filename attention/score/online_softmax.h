// The running softmax of one row over disjoint sets of keys, and its end. Scores are in units of
// which log2_scale makes base-2 logarithms. A row that has met no key has maximum -inf and sum 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "attn/base/hd.h"

namespace attn::score {

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504088896340736f;

// What stands for the maximum in exponents: finite for a row that has met no key, so that
// -inf - (-inf) is never formed.
ATTN_HD inline float ShiftOf(float max) { return max == kNoScore ? 0.0f : max; }

// Weight of everything summed under `max` once the maximum is `new_max`: 0 for an empty row,
// exactly 1 where the maximum stays.
ATTN_HD inline float Rescale(float max, float new_max, float log2_scale) {
  return std::exp2((max - ShiftOf(new_max)) * log2_scale);
}

// How two parts of one row over disjoint keys become one.
struct MergeWeights {
  float max;
  float left;   // weight of the left part's sum and output
  float right;  // weight of the right part's
};

ATTN_HD inline MergeWeights Merge(float left_max, float right_max, float log2_scale) {
  const float max = left_max < right_max ? right_max : left_max;
  return {max, Rescale(left_max, max, log2_scale), Rescale(right_max, max, log2_scale)};
}

// The merge of sums and of every output element: one fixed sequence of fused operations.
ATTN_HD inline float Merged(const MergeWeights& weights, float left, float right) {
  return std::fma(left, weights.left, right * weights.right);
}

// What turns an unnormalised row into a result.
struct Finished {
  float factor = 0.0f;   // output = factor * unnormalised output
  float lse = kNoScore;  // natural logarithm, sinks included
};

// Natural logits are natural_scale times scores. `sinks` are natural logits, [num_sinks]; they
// join here, once per row. A row with neither keys nor sinks gets factor 0 and lse -inf.
ATTN_HD inline Finished Finish(float max, float sum, float natural_scale, const float* sinks,
                               uint32_t num_sinks) {
  // A maximum may ignore NaN, the sum shows it.
  const bool has_keys = max != kNoScore || sum != 0.0f;
  float top = has_keys ? max * natural_scale : kNoScore;
  if (num_sinks == 0) {
    if (!has_keys) return {};
    return {1.0f / sum, top + std::log(sum)};
  }
  const float keys_top = top;
  for (uint32_t i = 0; i < num_sinks; ++i) top = sinks[i] > top ? sinks[i] : top;
  const float weight = has_keys ? std::exp(keys_top - top) : 0.0f;
  float total = has_keys ? sum * weight : 0.0f;
  for (uint32_t i = 0; i < num_sinks; ++i) total += std::exp(sinks[i] - top);
  return {weight / total, top + std::log(total)};
}

}  // namespace attn::score
