// The query heads of one KV head share its keys, so they are packed into the rows of a tile: row r
// is head r % group_size of query r / group_size. A tile holds whole queries; rows that are left
// over at its end stay unused.
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::cuda {

inline constexpr int kMaxGroupSize = 128;
inline constexpr int kMaxPackedRows = 2048;

struct RowMap {
  int32_t group_size = 1;
  uint32_t reciprocal = 1 << 20;  // ceil(2^20 / group_size)

  ATTN_HD constexpr int QueryOf(int row) const {
    return static_cast<int>((static_cast<uint32_t>(row) * reciprocal) >> 20);
  }
  ATTN_HD constexpr int HeadOf(int row) const { return row - QueryOf(row) * group_size; }
  ATTN_HD constexpr int RowOf(int query, int head) const { return query * group_size + head; }
  // Whole queries in a tile of `rows` rows.
  ATTN_HD constexpr int QueriesIn(int rows) const { return QueryOf(rows); }
};

// QueryOf is exact for rows 0 .. kMaxPackedRows. REQUIRES: 1 <= group_size <= kMaxGroupSize.
ATTN_HD constexpr RowMap MakeRowMap(int32_t group_size) {
  return {group_size, static_cast<uint32_t>(((1 << 20) + group_size - 1) / group_size)};
}

}  // namespace attn::cuda
