// Where a key or a value lies on the device. The pages of a layer group are one array
//
//   [num_pages, num_layers, 2 (keys, values), num_kv_heads, page_size, head_dim]
//
// so the slots of one (page, layer, keys or values, head), a *block*, are contiguous, block follows
// block without gaps, and one number names a block. That makes a block one box of a single tensor
// map over the whole pool, keys and values of all layers alike.
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::cuda {

inline constexpr int kKvHeadDim = 128;
inline constexpr int kKvRowBytes = kKvHeadDim * 2;

// Which item and which KV head a CTA works on, where each item has one CTA per head.
struct ItemAndHead {
  int32_t item = 0;
  int32_t kv_head = 0;
};

// Where in a sequence's page list a key lies.
struct KvSlot {
  int32_t page_index = 0;
  int32_t slot = 0;
};

struct KvPool {
  uint8_t* base = nullptr;  // on the device, 256-byte aligned
  int32_t num_pages = 0;
  int32_t num_layers = 1;
  int32_t num_kv_heads = 1;
  int32_t page_size = 1;
  // log2 of page_size and of num_kv_heads, or -1: divisions then take their time.
  int32_t page_log2 = -1;
  int32_t kv_heads_log2 = -1;

  ATTN_HD constexpr int32_t blocks_per_page() const { return num_layers * 2 * num_kv_heads; }
  ATTN_HD constexpr int64_t num_blocks() const { return int64_t{num_pages} * blocks_per_page(); }
  ATTN_HD constexpr int64_t block_bytes() const { return int64_t{page_size} * kKvRowBytes; }
  ATTN_HD constexpr int64_t page_bytes() const { return blocks_per_page() * block_bytes(); }
  // Block of the keys of (layer, head) within a page; their values are num_kv_heads further.
  ATTN_HD constexpr int32_t KeyBlockInPage(int32_t layer, int32_t head) const {
    return layer * 2 * num_kv_heads + head;
  }
  ATTN_HD constexpr int64_t BlockOf(int32_t page, int32_t block_in_page) const {
    return int64_t{page} * blocks_per_page() + block_in_page;
  }
  ATTN_HD constexpr KvSlot SlotOf(int32_t key) const {
    const int32_t index =
        page_log2 >= 0
            ? key >> page_log2
            : static_cast<int32_t>(static_cast<uint32_t>(key) / static_cast<uint32_t>(page_size));
    return {index, key - index * page_size};
  }
  ATTN_HD constexpr ItemAndHead ItemOf(int32_t cta) const {
    const int32_t item = kv_heads_log2 >= 0 ? cta >> kv_heads_log2 : cta / num_kv_heads;
    return {item, cta - item * num_kv_heads};
  }
  ATTN_HD constexpr int64_t OffsetOf(int64_t block, int32_t slot) const {
    return block * block_bytes() + int64_t{slot} * kKvRowBytes;
  }
};

// log2(value), or -1 if that is no integer.
constexpr int32_t ExactLog2(int32_t value) {
  for (int32_t log2 = 0; log2 < 31; ++log2) {
    if (value == 1 << log2) return log2;
  }
  return -1;
}

constexpr KvPool WithLog2(KvPool pool) {
  pool.page_log2 = ExactLog2(pool.page_size);
  pool.kv_heads_log2 = ExactLog2(pool.num_kv_heads);
  return pool;
}

}  // namespace attn::cuda
