// Where an element of a tile lies in shared memory. All tiles here have rows of 128 elements of 2
// bytes, cut into chunks of 16 bytes, and the hardware's 128-byte swizzle: within a block of 8 rows
// of 128 bytes, chunk c of row r sits at place c ^ r. So the 8 rows of a matrix that ldmatrix,
// stmatrix or a tensor core reads at the same columns fall into 8 different groups of banks.
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::cuda {

inline constexpr int kTileColumns = 128;
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunksPerRow = kTileColumns * 2 / kChunkBytes;
inline constexpr int kRowGroup = 8;                                  // rows of a swizzle block
inline constexpr int kSwizzleBlockBytes = kRowGroup * 128;           // 8 rows, 64 columns
inline constexpr int kRowGroupBytes = kRowGroup * kTileColumns * 2;  // 8 rows, 128 columns

ATTN_HD constexpr int SwizzledChunk(int row, int chunk) { return chunk ^ (row % kRowGroup); }

// Keys and values: groups of 8 rows one behind another, each the two blocks of 64 columns. So any
// number of rows divisible by 8 is one box of a copy, and boxes stack to a tile.
ATTN_HD constexpr int GroupedTileOffset(int row, int chunk) {
  return row / kRowGroup * kRowGroupBytes + chunk / 8 * kSwizzleBlockBytes + row % kRowGroup * 128 +
         SwizzledChunk(row, chunk % 8) * kChunkBytes;
}

// The same place reached from that of chunk % 2 of the row: what a loop over pairs of chunks adds
// to an address that is fixed per thread. REQUIRES: the tile is 1024-byte aligned.
ATTN_HD constexpr int GroupedTileOffsetFrom(int offset_of_first_pair, int pair) {
  return (offset_of_first_pair ^ (pair % 4 * 2 * kChunkBytes)) + pair / 4 * kSwizzleBlockBytes;
}

// Queries: all rows of columns 0 to 63, then, `rows` rows further, all rows of columns 64 to 127.
// So a copy may bring any number of rows.
ATTN_HD constexpr int HalvedTileOffset(int rows, int row, int chunk) {
  return chunk / 8 * rows * 128 + row * 128 + SwizzledChunk(row, chunk % 8) * kChunkBytes;
}

// Output on its way from registers to global memory: plain rows of 256 bytes, chunks swizzled.
ATTN_HD constexpr int StagedRowOffset(int row, int chunk) {
  return row * kTileColumns * 2 + (chunk / 8 * 8 + SwizzledChunk(row, chunk % 8)) * kChunkBytes;
}

// The bank (of 32, 4 bytes each) where a byte offset lies.
ATTN_HD constexpr int BankOf(int byte_offset) { return byte_offset / 4 % 32; }

}  // namespace attn::cuda
