// What is fixed when a decode kernel is compiled, and what is fixed for good: leaf and tree decide
// the bits of a row, so they never change with a batch.
#pragma once

#include <cstdint>

#include "attention/cuda/forward/config.h"
#include "attn/base/dtype.h"

namespace attn::cuda {

struct DecodeConfig {
  DType dtype;
  int head_dim;
  KvLoad load;
};

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
// A warp takes 16 keys at a time, every fourth block of 16 of a leaf.
inline constexpr int kDecodeBlock = 16;
inline constexpr int kLeafKeys = 256;
inline constexpr int kBlocksPerLeaf = kLeafKeys / kDecodeBlock;
inline constexpr int kBlocksPerWarpAndLeaf = kBlocksPerLeaf / kDecodeWarps;
// Leaves of the longest run that one CTA takes. A warp then has 32 blocks: one lane looks up each.
inline constexpr int kMaxExtentLog2 = 3;
// Packed query rows of a CTA: the columns of one product.
inline constexpr int kDecodeRows = 8;
inline constexpr int kMaxDecodeStages = 3;

// Extents of one row that can be merged: 8 warps, each 16 chunks of 8.
inline constexpr int kCombineWarps = 8;
inline constexpr int kCombineChunk = 8;
inline constexpr int kMaxSpanLog2 = 10;

// Keys of the longest extent, and of the longest row: 2 M.
inline constexpr int64_t kLongestExtentKeys = int64_t{kLeafKeys} << kMaxExtentLog2;
inline constexpr int64_t kMaxDecodeKeys = kLongestExtentKeys << kMaxSpanLog2;

}  // namespace attn::cuda
