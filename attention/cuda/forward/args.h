// What a forward kernel is given: arguments of the launch, a work item, and the work tile that the
// producer makes of it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"
#include "attention/cuda/tile/row_map.h"

namespace attn::cuda {

// One tile of packed query rows of one KV head.
struct ForwardItem {
  int32_t entry = 0;
  int32_t kv_head = 0;
  int32_t first_query = 0;  // within the entry
};

struct ForwardArgs {
  CUtensorMap query_map;  // box: 64 columns, group_size heads, rows.QueriesIn(tile_q) queries
  CUtensorMap kv_map;     // box: box_rows slots; unused by gathering kernels
  KvPool pool;
  LaunchScore score;
  RowMap rows;
  int32_t num_q_heads = 0;
  int32_t box_rows = 0;
  int32_t num_items = 0;
  const EntryRecord* entries = nullptr;
  const ForwardItem* items = nullptr;  // [num_items], longest first
  // 0 before the launch and after it. Not shared by launches that may overlap.
  int32_t* next_item = nullptr;
  int64_t* cta_cycles = nullptr;  // [number of CTAs] clocks each lived, for measurements; or null
};

// A work tile as both sides of a kernel see it.
struct ForwardTask {
  void* out;           // of the first query and the KV head's first query head
  float* lse;          // likewise, or null
  const float* sinks;  // [group_size, num_sinks], or null
  const int32_t* page_table;
  int64_t first_position;  // of the first query
  score::VisibleRange range;
  int32_t q_row;  // of the first query in the packed queries
  int32_t kv_head;
  int32_t key_block;  // of the keys, within a page
  int32_t num_queries;
  int32_t kv_end;
  // Key tiles: [first, last) hold visible keys, all of [first_full, last_full) is visible to all.
  int32_t first, first_full, last_full, last;
  bool writes_fp32;
  bool is_end;  // no more work; nothing else is set

  ATTN_HD bool sees_keys() const { return first < last; }
};

// REQUIRES: item.entry and item.first_query lie within the launch.
ATTN_HD inline ForwardTask MakeForwardTask(const ForwardArgs& args, const ForwardItem& item,
                                           int tile_q, int tile_kv) {
  const EntryRecord& entry = args.entries[item.entry];
  const int32_t queries = args.rows.QueriesIn(tile_q);
  const int32_t left = entry.q_len - item.first_query;
  const int32_t first_head = item.kv_head * args.rows.group_size;
  const int64_t first_row = int64_t{item.first_query} * args.num_q_heads + first_head;
  ForwardTask task;
  task.is_end = false;
  task.writes_fp32 = entry.writes_fp32;
  task.out = static_cast<uint8_t*>(entry.out) +
             first_row * kKvHeadDim * (entry.writes_fp32 ? int64_t{4} : int64_t{2});
  task.lse = entry.lse == nullptr ? nullptr : entry.lse + first_row;
  const int64_t sink_row = int64_t{entry.layer} * args.num_q_heads + first_head;
  task.sinks = args.score.num_sinks == 0 || !entry.uses_sinks
                   ? nullptr
                   : args.score.sinks + sink_row * args.score.num_sinks;
  task.page_table = entry.page_table;
  task.first_position = entry.q_start + item.first_query;
  task.range = args.score.RangeOf(entry);
  task.q_row = static_cast<int32_t>(entry.q_row + item.first_query);
  task.kv_head = item.kv_head;
  task.key_block = args.pool.KeyBlockInPage(entry.layer, item.kv_head);
  task.num_queries = left < queries ? left : queries;
  task.kv_end = entry.kv_end;
  const score::TileRange tiles =
      task.range.TilesOf(task.first_position, task.first_position + task.num_queries - 1, tile_kv);
  task.first = static_cast<int32_t>(tiles.first);
  task.first_full = static_cast<int32_t>(tiles.first_full);
  task.last_full = static_cast<int32_t>(tiles.last_full);
  task.last = static_cast<int32_t>(tiles.last);
  return task;
}

}  // namespace attn::cuda
