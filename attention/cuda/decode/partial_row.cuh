// The partial result of one row over some keys, the one way in which two of them become one, and
// how a row ends. Used by the decode kernel and by the combine kernel, so that it does not matter
// for the bits where a merge takes place.
#pragma once

#include <cstdint>

#include "attention/cuda/decode/args.h"
#include "attention/cuda/ptx/regs.cuh"
#include "attention/score/online_softmax.h"

namespace attn::cuda {

// kCount consecutive output elements of a row, not normalised, with the row's state.
template <int kCount>
struct PartialRow {
  float max = score::kNoScore;
  float sum = 0.0f;
  float out[kCount] = {};
};

// `left` covers smaller positions. A part without keys changes nothing but the sign of a zero.
template <int kCount>
__device__ __forceinline__ PartialRow<kCount> MergedRows(const PartialRow<kCount>& left,
                                                         const PartialRow<kCount>& right,
                                                         float log2_scale) {
  const score::MergeWeights weights = score::Merge(left.max, right.max, log2_scale);
  PartialRow<kCount> merged;
  merged.max = weights.max;
  merged.sum = score::Merged(weights, left.sum, right.sum);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    merged.out[i] = score::Merged(weights, left.out[i], right.out[i]);
  }
  return merged;
}

// A binary tree at fixed positions over parts that arrive in order: level l keeps the left sibling
// of 2^l positions until the right one is there. Parts that are missing are empty.
template <int kCount, int kLevels>
struct MergeStack {
  PartialRow<kCount> waiting[kLevels];

  // Positions 0, 1, 2, … of an aligned run of 2^n, n <= kLevels. Returns, for the last one, the
  // whole.
  __device__ __forceinline__ PartialRow<kCount> Push(PartialRow<kCount> part, int position,
                                                     float log2_scale) {
    bool is_placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (is_placed) continue;
      if ((position >> level & 1) != 0) {
        part = MergedRows(waiting[level], part, log2_scale);
      } else {
        waiting[level] = part;
        is_placed = true;
      }
    }
    return part;
  }
};

// Writes elements [first, first + kCount) of a finished row; the thread with element 0 the LSE too.
template <int kCount>
__device__ __forceinline__ void WriteRow(const DecodeArgs& args, const EntryRecord& entry,
                                         int32_t kv_head, DecodeRow row,
                                         const PartialRow<kCount>& part, int first) {
  if (row.query >= entry.q_len) return;
  const int32_t head = kv_head * args.rows.group_size + row.head;
  const uint32_t num_sinks = entry.uses_sinks ? args.score.num_sinks : 0;
  const int64_t sink_row = int64_t{entry.layer} * args.num_q_heads + head;
  const score::Finished finished =
      score::Finish(part.max, part.sum, args.score.natural_scale,
                    args.score.sinks + sink_row * num_sinks, num_sinks);
  const int64_t out_row = int64_t{row.query} * args.num_q_heads + head;
  if (entry.lse != nullptr && first == 0) entry.lse[out_row] = finished.lse;
  float result[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // Adding 0 makes -0 to 0, so that missing parts leave no trace.
    result[i] = fmaf(finished.factor, part.out[i], 0.0f);
  }
  if (entry.writes_fp32) {
    float* target = static_cast<float*>(entry.out) + out_row * kKvHeadDim + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i) target[i] = result[i];
  } else {
    uint16_t* target = static_cast<uint16_t*>(entry.out) + out_row * kKvHeadDim + first;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<uint2*>(target + i) = uint2{ptx::PackBf16(result[i], result[i + 1]),
                                                    ptx::PackBf16(result[i + 2], result[i + 3])};
    }
  }
}

}  // namespace attn::cuda
