// Does any of many scores exceed a bound? Asked of their bits as integers, three at a time: that
// takes half the instructions of a maximum of floats.
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::cuda {

// Every score reaches it.
inline constexpr int32_t kReachedByAll = INT32_MIN;

ATTN_HD constexpr int32_t ScoreBits(float score) { return __builtin_bit_cast(int32_t, score); }

// The least bits of a score above `bound`: non-negative floats are ordered as their bits are, and
// all negative ones have lesser bits. That says nothing of bounds below 0, for which any score is
// taken to be above; so it is for NaN.
ATTN_HD constexpr int32_t FirstBitsAbove(float bound) {
  const int32_t bits = ScoreBits(bound);
  return bits < 0 || bound != bound ? kReachedByAll : bits + 1;
}

}  // namespace attn::cuda
