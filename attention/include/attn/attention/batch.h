// One launch: appends of new keys and values, and query rows over pages. Entries may belong to
// different clients, sequences and layers; the spec is uniform.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/base/dtype.h"
#include "attn/base/ids.h"

namespace attn {

// Pages of a sequence: id of page i is chunks[i >> chunk_log2][i & ((1 << chunk_log2) - 1)].
// A flat table is one chunk with chunk_log2 = 31. A view: owns nothing.
struct PageList {
  const PageId* const* chunks = nullptr;
  int32_t chunk_log2 = 31;
  int32_t num_pages = 0;

  PageId operator[](int32_t index) const {
    return chunks[index >> chunk_log2][index & ((int64_t{1} << chunk_log2) - 1)];
  }
};

// How an item's rows are computed; decided from the client's item, never from how the server cuts
// it: at most kMaxDecodeRows query rows are decode.
enum class RowClass : uint8_t { kDecode, kPrefill };
inline constexpr uint32_t kMaxDecodeRows = 16;
constexpr RowClass ClassOf(uint32_t item_q_len) {
  return item_q_len <= kMaxDecodeRows ? RowClass::kDecode : RowClass::kPrefill;
}

// Positions of query rows lie strictly between -kPositionLimit and kPositionLimit, so that adding
// or taking off a window never overflows. Launch does not look: whoever makes entries makes sure.
inline constexpr int64_t kPositionLimit = int64_t{1} << 60;

// Query rows of one item, or a part of them. Pointers may have any alignment.
struct AttendEntry {
  const void* q = nullptr;  // [q_len, num_q_heads, head_dim_qk], activation dtype
  void* out = nullptr;      // [q_len, num_q_heads, head_dim_v], out_dtype
  float* lse = nullptr;     // [q_len, num_q_heads] or null
  PageList pages;
  // Absolute position of the first row; may be negative or beyond the keys, see kPositionLimit.
  int64_t q_start = 0;
  int32_t q_len = 0;
  int32_t kv_end = 0;  // rows see keys below this position
  uint32_t layer = 0;  // index within the layer group
  // Only these KV heads (and their query heads) are computed, the rest of out and lse untouched.
  uint32_t kv_head_begin = 0;
  uint32_t kv_head_end = 0;
  DType out_dtype = DType::kFloat32;
  RowClass row_class = RowClass::kDecode;
  bool causal = true;
  bool use_sinks = true;
};

// New keys and values for slots [begin, begin + count) of one (sequence, layer).
struct AppendEntry {
  const void* k = nullptr;  // [count, num_kv_heads, head_dim_qk], activation dtype
  const void* v = nullptr;  // [count, num_kv_heads, head_dim_v], activation dtype
  PageList pages;
  uint32_t layer = 0;
  uint32_t begin = 0;
  uint32_t count = 0;
};

// Copy of slots [0, slots_per_layer[i]) of every layer i of the group from one page to another.
struct PageCopy {
  PageId source = kNoPage;
  PageId target = kNoPage;
  const uint32_t* slots_per_layer = nullptr;  // [num_layers]
};

// Done in this order: copies (one after the other), appends, rows.
struct Batch {
  std::vector<PageCopy> copies;
  std::vector<AppendEntry> appends;
  std::vector<AttendEntry> rows;
};

}  // namespace attn
