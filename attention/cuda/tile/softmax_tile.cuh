// The running softmax of the two rows that a thread shares with its quad in a 64 x 128 accumulator
// of a warpgroup, and what happens to scores before it.
#pragma once

#include <cstdint>

#include "attention/cuda/ptx/regs.cuh"
#include "attention/cuda/tile/fragment.h"
#include "attention/cuda/tile/score_limit.h"
#include "attention/score/logit.h"
#include "attention/score/online_softmax.h"
#include "attention/score/visible_range.h"

namespace attn::cuda {

inline constexpr int kAccumulators = 64;
inline constexpr int kRowsPerThread = 2;

// Which of the two rows register `index` belongs to.
ATTN_HD constexpr int RowSlotOf(int index) { return (index / 2) % kRowsPerThread; }

// The soft cap of score/logit.h with the hardware's exponential: within 2e-7 of it, times the cap,
// also for huge logits.
__device__ __forceinline__ float CappedScore(const score::ScoreOp& op, float dot) {
  const float doubled_log2 = dot * (op.input_scale * 2.0f * score::kLog2E);
  const float denominator = 1.0f + ptx::Exp2Fast(doubled_log2);
  return fmaf(-2.0f * op.cap, ptx::ReciprocalFast(denominator), op.cap);
}

__device__ __forceinline__ float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

__device__ __forceinline__ float QuadSum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// Keys that a row sees, counted from column 2 * (lane % 4) of key tile 0, so that a column of the
// accumulator is a constant.
struct ColumnBounds {
  int32_t begin[kRowsPerThread];
  int32_t end[kRowsPerThread];
};

// Keys outside a row's bounds get score -inf, whatever was there.
__device__ __forceinline__ void MaskScores(float (&scores)[kAccumulators],
                                           const ColumnBounds& bounds, int32_t first_key) {
  uint32_t visible[kRowsPerThread];
#pragma unroll
  for (int row = 0; row < kRowsPerThread; ++row) {
    visible[row] = ColumnsWithin(bounds.begin[row] - first_key, bounds.end[row] - first_key);
  }
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) {
    if ((visible[RowSlotOf(i)] >> ColumnNumber(i) & 1) == 0) scores[i] = score::kNoScore;
  }
}

// Of this thread's columns; four chains, since one would be 32 dependent steps.
__device__ __forceinline__ float MaxOf(const float (&scores)[kAccumulators], int row) {
  float chains[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) chains[i] = scores[4 * (i / 2) + 2 * row + i % 2];
#pragma unroll
  for (int i = 8; i < kAccumulators; ++i) {
    if (RowSlotOf(i) == row) {
      float& chain = chains[ColumnNumber(i) % 4];
      chain = fmaxf(chain, scores[i]);
    }
  }
  return fmaxf(fmaxf(chains[0], chains[1]), fmaxf(chains[2], chains[3]));
}

// The greatest bits among this thread's columns; two chains.
__device__ __forceinline__ int32_t TopBitsOf(const float (&scores)[kAccumulators], int row) {
  int32_t chains[2] = {kReachedByAll, kReachedByAll};
#pragma unroll
  for (int i = 2 * row; i < kAccumulators; i += 4) {
    int32_t& chain = chains[i / 4 % 2];
    chain = __vimax3_s32(chain, ScoreBits(scores[i]), ScoreBits(scores[i + 1]));
  }
  return chains[0] < chains[1] ? chains[1] : chains[0];
}

// How far, in powers of 2, scores may exceed the maximum that a row works with.
inline constexpr float kSlackLog2 = 8.0f;

// What a row works with as its maximum stays until a score exceeds it by more than the slack:
// weights are then at most 2^8 instead of 1, which no result notices, and sums and outputs hardly
// ever need to be rescaled. Each row decides for itself, and a row that stays while others of the
// warp move is multiplied by exactly 1, so its bits do not depend on its neighbours.
struct SoftmaxRows {
  float max[kRowsPerThread] = {score::kNoScore, score::kNoScore};
  float sum[kRowsPerThread] = {};                                  // of this thread's columns only
  int32_t limit[kRowsPerThread] = {kReachedByAll, kReachedByAll};  // bits of scores that move it

  // Whether a row of this warp may have to move.
  __device__ __forceinline__ bool IsExceeded(const float (&scores)[kAccumulators]) const {
    bool is_exceeded = false;
#pragma unroll
    for (int row = 0; row < kRowsPerThread; ++row) {
      is_exceeded |= TopBitsOf(scores, row) >= limit[row];
    }
    return __any_sync(~0u, is_exceeded);
  }

  // `slack` is kSlackLog2 in units of scores. Returns in `rescale` what earlier outputs must be
  // multiplied by.
  __device__ __forceinline__ void Move(const float (&scores)[kAccumulators], float log2_scale,
                                       float slack, float (&rescale)[kRowsPerThread]) {
#pragma unroll
    for (int row = 0; row < kRowsPerThread; ++row) {
      const float top = QuadMax(MaxOf(scores, row));
      const float new_max = top > __fadd_rn(max[row], slack) ? top : max[row];
      const float below = __fsub_rn(max[row], score::ShiftOf(new_max));
      rescale[row] = ptx::Exp2Fast(__fmul_rn(below, log2_scale));
      sum[row] = __fmul_rn(sum[row], rescale[row]);
      max[row] = new_max;
      limit[row] = FirstBitsAbove(__fadd_rn(new_max, slack));
    }
  }

  // Scores become weights.
  __device__ __forceinline__ void Weigh(float (&scores)[kAccumulators], float log2_scale) {
    float shift_log2[kRowsPerThread];
#pragma unroll
    for (int row = 0; row < kRowsPerThread; ++row) {
      shift_log2[row] = __fmul_rn(score::ShiftOf(max[row]), log2_scale);
    }
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) {
      const int row = RowSlotOf(i);
      scores[i] = ptx::Exp2Fast(fmaf(scores[i], log2_scale, -shift_log2[row]));
      sum[row] = __fadd_rn(sum[row], scores[i]);
    }
  }
};

// score::Finish for a row without sinks, in a few instructions.
__device__ __forceinline__ score::Finished FinishWithoutSinks(float max, float sum,
                                                              float natural_scale) {
  if (max == score::kNoScore && sum == 0.0f) return {};  // NaN shows in the sum
  return {ptx::ReciprocalFast(sum),
          fmaf(ptx::Log2Fast(sum), 1 / score::kLog2E, max * natural_scale)};
}

// Weights rounded to bf16, as left operands of eight products 16 keys deep.
__device__ __forceinline__ void PackWeights(const float (&weights)[kAccumulators],
                                            uint32_t (&packed)[kAccumulators / 2]) {
#pragma unroll
  for (int i = 0; i < kAccumulators / 2; ++i) {
    const int first = FirstOfOperandPair(i / 4, i % 4);
    packed[i] = ptx::PackBf16(weights[first], weights[first + 1]);
  }
}

}  // namespace attn::cuda
