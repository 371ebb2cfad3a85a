// Where an element of K or V lies inside a page. A page holds, for every layer and then every KV
// head, one slice of K followed by one of V, so that what one head reads of a page is contiguous.
//
//   page_size a multiple of 16 ("blocked"):
//     K  blocks of 16 keys, d-major: [page_size/16][head_dim_qk][16];
//        bfloat16 in pairs of d: [page_size/16][head_dim_qk/2][16][2]
//     V  rows: [page_size][head_dim_v]; bfloat16 in pairs of keys: [page_size/2][head_dim_v][2]
//   any other page size: K and V as rows, [page_size][head_dim]
//
// A pair is one 32-bit word, which becomes two floats by a shift and a mask. float16 is not paired:
// the conversion instruction wants its sixteen keys side by side.
#pragma once

#include <cstdint>

#include "attn/attention/attention_spec.h"
#include "attn/base/dtype.h"

namespace attn::cpu {

inline constexpr int32_t kBlockKeys = 16;

struct KvLayout {
  int64_t page_size = 0;
  int64_t num_kv_heads = 0;
  int64_t num_layers = 0;
  int64_t head_dim_qk = 0;
  int64_t head_dim_v = 0;
  int64_t element_bytes = 0;
  bool is_blocked = false;
  bool is_paired = false;

  static KvLayout Of(const AttentionSpec& spec) {
    const bool is_blocked = spec.page_size % kBlockKeys == 0;
    return {.page_size = spec.page_size,
            .num_kv_heads = spec.num_kv_heads,
            .num_layers = spec.num_layers,
            .head_dim_qk = spec.head_dim_qk,
            .head_dim_v = spec.head_dim_v,
            .element_bytes = static_cast<int64_t>(SizeOf(spec.kv_dtype)),
            .is_blocked = is_blocked,
            .is_paired = is_blocked && spec.kv_dtype == DType::kBFloat16};
  }

  int64_t key_slice_bytes() const { return page_size * head_dim_qk * element_bytes; }
  int64_t value_slice_bytes() const { return page_size * head_dim_v * element_bytes; }
  int64_t head_bytes() const { return key_slice_bytes() + value_slice_bytes(); }
  int64_t page_bytes() const { return num_layers * num_kv_heads * head_bytes(); }

  // Bytes from the start of a page to a slice.
  int64_t KeySliceOffset(int64_t layer, int64_t kv_head) const {
    return (layer * num_kv_heads + kv_head) * head_bytes();
  }
  int64_t ValueSliceOffset(int64_t layer, int64_t kv_head) const {
    return KeySliceOffset(layer, kv_head) + key_slice_bytes();
  }

  // Elements from the start of a slice.
  int64_t KeyElement(int64_t slot, int64_t dim) const {
    if (!is_blocked) return slot * head_dim_qk + dim;
    const int64_t block = slot / kBlockKeys * kBlockKeys * head_dim_qk;
    const int64_t lane = slot % kBlockKeys;
    if (!is_paired) return block + dim * kBlockKeys + lane;
    return block + dim / 2 * (2 * kBlockKeys) + 2 * lane + dim % 2;
  }
  int64_t ValueElement(int64_t slot, int64_t dim) const {
    if (!is_paired) return slot * head_dim_v + dim;
    return slot / 2 * (2 * head_dim_v) + 2 * dim + slot % 2;
  }
};

}  // namespace attn::cpu
