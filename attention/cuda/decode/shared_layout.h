// Where things lie in the shared memory of a decode kernel.
#pragma once

#include <cstdint>

#include "attention/cuda/decode/config.h"
#include "attention/cuda/kv_pool.h"
#include "attn/base/hd.h"

namespace attn::cuda {

inline constexpr int kDecodeTileBytes = kDecodeBlock * kKvRowBytes;
inline constexpr int kDecodeStageBytes = 2 * kDecodeTileBytes;

// A warp's part of a leaf on its way to the merge: per row 128 outputs, maximum, sum, and two words
// that keep the four columns of a fragment in different banks.
inline constexpr int kMergeRowFloats = kKvHeadDim + 4;

// Shared memory, in this order: stages of all warps, merge area, barriers.
struct DecodeSharedLayout {
  int32_t stages;
  int32_t rows_per_block;

  ATTN_HD constexpr int StageOffset(int warp, int stage) const {
    return (warp * stages + stage) * kDecodeStageBytes;
  }
  ATTN_HD constexpr int MergeOffset(int warp) const {
    return StageOffset(kDecodeWarps, 0) +
           warp * rows_per_block * kMergeRowFloats * static_cast<int>(sizeof(float));
  }
  ATTN_HD constexpr int BarrierOffset(int warp) const {
    return MergeOffset(kDecodeWarps) + warp * stages * static_cast<int>(sizeof(uint64_t));
  }
  ATTN_HD constexpr int Bytes() const { return BarrierOffset(kDecodeWarps); }
};

// What one SM of Hopper has, and what every CTA of it costs beside its own.
inline constexpr int kSharedBytesPerSm = 228 * 1024;
inline constexpr int kSharedBytesReserved = 1024;
static_assert(3 * (DecodeSharedLayout{2, 4}.Bytes() + kSharedBytesReserved) <= kSharedBytesPerSm);
static_assert(2 * (DecodeSharedLayout{3, 8}.Bytes() + kSharedBytesReserved) <= kSharedBytesPerSm);

}  // namespace attn::cuda
