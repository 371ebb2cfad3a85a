// What the decode kernels are given. A row's keys are cut into *extents*, aligned runs of 2^k
// leaves; each extent's partial result (maximum, sum, unnormalised output) is merged by the combine
// kernel, unless the row has only one.
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>

#include "attention/cuda/decode/config.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"
#include "attention/cuda/tile/row_map.h"

namespace attn::cuda {

// One extent of eight packed rows of an entry; one CTA for every KV head.
struct alignas(16) DecodeItem {
  // The entry's, so that page ids are on their way together with the entry.
  const int32_t* page_table = nullptr;
  int32_t entry = 0;
  int32_t kv_end = 0;  // planned: at least the entry's
  int32_t first_leaf = 0;
  int32_t partial = -1;    // where the partial result goes; negative: it is the result
  int16_t num_leaves = 0;  // a power of two; leaves that hold no key may be left out at the end
  int16_t row_block = 0;
};

// The extents of one row, or of the eight rows of a block, of an entry; one CTA for every KV head.
struct alignas(16) CombineItem {
  int32_t entry = 0;
  int32_t first_partial = 0;
  int16_t num_partials = 0;
  int16_t first_position = 0;  // of the first extent in the span
  int16_t span_log2 = 0;       // the extents lie in an aligned span of 2^span_log2 positions
  int16_t row_block = 0;
  int16_t row = -1;  // within the block; negative: all, a warp each, and the span is at most 8
};

struct DecodeArgs {
  CUtensorMap kv_map;  // box: 16 slots; unused by gathering kernels
  KvPool pool;
  LaunchScore score;
  RowMap rows;
  int32_t num_q_heads = 1;
  int32_t rows_per_block = kDecodeRows;  // rows that exist in shared memory and partials: 4 or 8
  int32_t stages = 2;
  const uint16_t* q = nullptr;  // [total_q, num_q_heads, 128], bf16
  const EntryRecord* entries = nullptr;
  const DecodeItem* items = nullptr;      // [CTAs / num_kv_heads]
  const CombineItem* combines = nullptr;  // [CTAs of the combine kernel / num_kv_heads]
  float* partial_out = nullptr;           // [num_partials, num_kv_heads, rows_per_block, 128]
  float2* partial_state = nullptr;        // [num_partials, num_kv_heads, rows_per_block] max, sum
};

// A packed row of an entry.
struct DecodeRow {
  int32_t query = 0;
  int32_t head = 0;  // query head within the KV head's group
};

ATTN_HD constexpr DecodeRow DecodeRowOf(const DecodeArgs& args, int32_t row_block, int32_t row) {
  const int32_t packed = row_block * kDecodeRows + row;
  return {args.rows.QueryOf(packed), args.rows.HeadOf(packed)};
}

ATTN_HD constexpr int64_t PartialIndex(const DecodeArgs& args, int32_t partial, int32_t kv_head,
                                       int32_t row) {
  return (int64_t{partial} * args.pool.num_kv_heads + kv_head) * args.rows_per_block + row;
}

}  // namespace attn::cuda
