// Which element of a product a thread holds in which register, for the shapes used here.
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::cuda {

struct Element {
  int row = 0;
  int column = 0;
};

// Register `index` of thread `thread` of a warpgroup in a 64-row wgmma accumulator.
ATTN_HD constexpr Element WarpgroupAccumulator(int thread, int index) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * ((index / 2) % 2),
          8 * (index / 4) + 2 * (lane % 4) + index % 2};
}

// Registers of the accumulator above that hold, packed in pairs, the left operand's registers of
// the 16 columns from 16 * block: pair `i` of the operand is accumulators (8 block + 2 i, + 1).
ATTN_HD constexpr int FirstOfOperandPair(int block, int pair) { return 8 * block + 2 * pair; }

// The columns that thread 0 holds of a row of the accumulator above are 8 (n / 2) + n % 2 for n
// from 0 to 31. Bit n of the result: that column lies in [begin, end).
ATTN_HD constexpr int ColumnNumber(int index) { return index / 4 * 2 + index % 2; }

ATTN_HD constexpr uint32_t ColumnsBelow(int column) {
  const int count = column <= 0 ? 0 : column / 8 * 2 + (column % 8 < 2 ? column % 8 : 2);
  return count >= 32 ? ~0u : (1u << count) - 1;
}

ATTN_HD constexpr uint32_t ColumnsWithin(int begin, int end) {
  return ColumnsBelow(end) & ~ColumnsBelow(begin);
}

// Left operand of a 16-deep product by a warp: element `half` (0 or 1) of register `index`.
ATTN_HD constexpr Element LeftOperand(int lane, int index, int half) {
  return {lane / 4 + 8 * (index % 2), 2 * (lane % 4) + half + 8 * (index / 2)};
}

// Register `index` of a 16 x 8 accumulator of one warp.
ATTN_HD constexpr Element WarpAccumulator(int lane, int index) {
  return {lane / 4 + 8 * (index / 2), 2 * (lane % 4) + index % 2};
}

// Right operand (16 deep, 8 columns) of one warp: element `half` of register `index`. Row counts
// the depth.
ATTN_HD constexpr Element RightOperand(int lane, int index, int half) {
  return {2 * (lane % 4) + half + 8 * index, lane / 4};
}

}  // namespace attn::cuda
