// What a kernel is asked to do: rows of one entry against one KV head.
#pragma once

#include <cstdint>

#include "attention/cpu/kv_layout.h"
#include "attention/score/lower.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn::cpu {

// Keys that are scored together, at absolute multiples: the tile of prefill, the leaf of decode.
inline constexpr int32_t kTileKeys = 256;
inline constexpr int32_t kTileBlocks = kTileKeys / kBlockKeys;

// Packed rows: the query heads of a group at one position stand next to each other, so that each
// key serves all of them. Row r is position q_start + r / group_size.
struct HeadWork {
  const AttentionSpec* spec = nullptr;
  const KvLayout* layout = nullptr;
  const uint8_t* store_base = nullptr;  // page 0
  const AttendEntry* entry = nullptr;
  score::LoweredScore score;
  uint32_t kv_head = 0;

  int32_t num_rows() const { return entry->q_len * static_cast<int32_t>(spec->group_size()); }
  int64_t PositionOf(int32_t row) const {
    return entry->q_start + row / static_cast<int32_t>(spec->group_size());
  }
  // Index of the row in [q_len, num_q_heads].
  int64_t TokenHeadOf(int32_t row) const {
    const int32_t group_size = static_cast<int32_t>(spec->group_size());
    return int64_t{row / group_size} * spec->num_q_heads + int64_t{kv_head} * group_size +
           row % group_size;
  }
};

}  // namespace attn::cpu
