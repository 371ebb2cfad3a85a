// Descriptions of tensors for the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/cuda/kv_pool.h"

namespace attn::cuda {

// The pool of KV blocks, cut into boxes of `box_rows` slots which land as tile/swizzle.h's grouped
// tile. Coordinates {0, 0, 0, slot / 8, block}.
// REQUIRES: box_rows is a multiple of 8 that divides pool.page_size, at most 256.
absl::StatusOr<CUtensorMap> MakeKvMap(const KvPool& pool, int box_rows);

// Packed queries [total_q, num_q_heads, 128], cut into boxes of 64 columns, `heads` heads and
// `queries` rows, of which two make a halved tile. Coordinates {column, head, row}.
absl::StatusOr<CUtensorMap> MakeQueryMap(const void* q, int64_t total_q, int num_q_heads, int heads,
                                         int queries);

// Rows of the largest box that both a page and a tile of `tile_rows` consist of; below 8 there is
// no map for such pages.
constexpr int BoxRows(int page_size, int tile_rows) {
  return page_size % tile_rows == 0 ? tile_rows : BoxRows(page_size, tile_rows / 2);
}

}  // namespace attn::cuda
