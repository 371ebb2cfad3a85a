// What kernels know of one entry of a batch, and what is uniform in a launch. Both lie in device or
// constant memory, so a captured graph replays with new records.
#pragma once

#include <cstdint>

#include "attention/score/lower.h"
#include "attention/score/visible_range.h"
#include "attn/base/hd.h"

namespace attn::cuda {

// Query rows of one item or a part of them, over the pages of one (sequence, layer).
struct alignas(16) EntryRecord {
  const int32_t* page_table = nullptr;  // [ceil(kv_end / page_size)] page ids
  void* out = nullptr;                  // [q_len, num_q_heads, head_dim], bf16 or fp32
  float* lse = nullptr;                 // [q_len, num_q_heads] or null
  int64_t q_row = 0;                    // first row in the packed queries of the launch
  int64_t q_start = 0;                  // absolute position of the first row
  int32_t q_len = 0;
  int32_t kv_end = 0;
  int32_t layer = 0;
  int16_t kv_head_begin = 0;  // only these KV heads and their query heads are computed
  int16_t kv_head_end = 0;
  bool is_causal = true;
  bool uses_sinks = true;
  bool writes_fp32 = false;
  bool shares_pages = false;  // other entries of the launch read the same pages: keep them in L2
};

// The variant of a launch; of lower.h's result what does not depend on the entry.
struct LaunchScore {
  float query_factor = 1.0f;
  score::ScoreOp op;
  float natural_scale = 1.0f;
  float log2_scale = 1.0f;
  score::VisibleRange range;     // of an item that is not causal; kv_end is each entry's own
  const float* sinks = nullptr;  // [num_layers, num_q_heads, num_sinks] on the device, or null
  uint32_t num_sinks = 0;

  ATTN_HD constexpr score::VisibleRange RangeOf(bool is_causal, int64_t kv_end) const {
    score::VisibleRange own = range;
    if (is_causal) own.right = 0;
    own.kv_end = kv_end;
    return own;
  }
  ATTN_HD constexpr score::VisibleRange RangeOf(const EntryRecord& entry) const {
    return RangeOf(entry.is_causal, entry.kv_end);
  }
};

}  // namespace attn::cuda
