// Appending: rows are rounded to the cache dtype, then K is scattered into its d-major blocks.
#include "attention/cpu/append.h"

#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/append.cc"
#include "hwy/foreach_target.h"
// After foreach_target:
#include <algorithm>
#include <cstring>

#include "attention/cpu/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kRowBytes = kMaxHeadDim * static_cast<int64_t>(sizeof(float));

// One row of activations in the dtype of the cache.
HWY_INLINE void EncodeRow(const AttentionSpec& spec, const void* from, int64_t head_dim, void* to) {
  if (spec.activation_dtype == spec.kv_dtype) {
    std::memcpy(to, from, static_cast<size_t>(head_dim) * SizeOf(spec.kv_dtype));
    return;
  }
  float row[kMaxHeadDim];
  LoadRow(spec.activation_dtype, from, head_dim, row);
  StoreRow(spec.kv_dtype, row, head_dim, to);
}

// `count` encoded keys, kRowBytes apart, into lanes [lane, lane + count) of a block.
template <typename Element>
void ScatterKeys(const KvLayout& layout, const uint8_t* rows, int64_t lane, int64_t count,
                 uint8_t* block) {
  Element* to = reinterpret_cast<Element*>(block);
  const Element* from = reinterpret_cast<const Element*>(rows);
  constexpr int64_t kStride = kRowBytes / static_cast<int64_t>(sizeof(Element));
  if (layout.is_paired) {
    for (int64_t d = 0; d < layout.head_dim_qk; d += 2) {
      Element* pair = to + d * kBlockKeys + 2 * lane;
      for (int64_t i = 0; i < count; ++i) {
        pair[2 * i] = from[i * kStride + d];
        pair[2 * i + 1] = from[i * kStride + d + 1];
      }
    }
    return;
  }
  for (int64_t d = 0; d < layout.head_dim_qk; ++d) {
    for (int64_t i = 0; i < count; ++i) to[d * kBlockKeys + lane + i] = from[i * kStride + d];
  }
}

class HeadAppender {
 public:
  HeadAppender(const CpuKvStore& store, const AppendEntry& entry, uint32_t kv_head)
      : store_(store),
        spec_(store.spec()),
        layout_(store.layout()),
        entry_(entry),
        kv_head_(kv_head),
        key_slice_(layout_.KeySliceOffset(entry.layer, kv_head)),
        value_slice_(layout_.ValueSliceOffset(entry.layer, kv_head)) {}

  void Append() const {
    const int64_t stop = int64_t{entry_.begin} + entry_.count;
    for (int64_t key = entry_.begin; key < stop;) {
      const int64_t slot = key % layout_.page_size;
      uint8_t* page = store_.PageAt(entry_.pages[static_cast<int32_t>(key / layout_.page_size)]);
      const int64_t block_end = (slot / kBlockKeys + 1) * kBlockKeys;
      const int64_t count = std::min(stop - key, std::min(block_end, layout_.page_size) - slot);
      AppendKeys(key, slot, count, page + key_slice_);
      AppendValues(key, slot, count, page + value_slice_);
      key += count;
    }
  }

 private:
  const void* RowOf(const void* base, int64_t key, int64_t head_dim) const {
    const int64_t row = (key - entry_.begin) * layout_.num_kv_heads + kv_head_;
    return static_cast<const char*>(base) +
           row * head_dim * static_cast<int64_t>(SizeOf(spec_.activation_dtype));
  }

  // Up to 16 keys, all in one block of the blocked layout.
  void AppendKeys(int64_t key, int64_t slot, int64_t count, uint8_t* slice) const {
    const int64_t head_dim = layout_.head_dim_qk;
    if (!layout_.is_blocked) {
      for (int64_t i = 0; i < count; ++i) {
        EncodeRow(spec_, RowOf(entry_.k, key + i, head_dim), head_dim,
                  slice + layout_.KeyElement(slot + i, 0) * layout_.element_bytes);
      }
      return;
    }
    alignas(64) uint8_t rows[kBlockKeys * kRowBytes];
    for (int64_t i = 0; i < count; ++i) {
      EncodeRow(spec_, RowOf(entry_.k, key + i, head_dim), head_dim, rows + i * kRowBytes);
    }
    const int64_t lane = slot % kBlockKeys;
    uint8_t* block = slice + layout_.KeyElement(slot - lane, 0) * layout_.element_bytes;
    if (layout_.element_bytes == 4) {
      ScatterKeys<uint32_t>(layout_, rows, lane, count, block);
    } else {
      ScatterKeys<uint16_t>(layout_, rows, lane, count, block);
    }
  }

  void AppendValues(int64_t key, int64_t slot, int64_t count, uint8_t* slice) const {
    const int64_t head_dim = layout_.head_dim_v;
    for (int64_t i = 0; i < count; ++i) {
      const void* from = RowOf(entry_.v, key + i, head_dim);
      uint8_t* to = slice + layout_.ValueElement(slot + i, 0) * layout_.element_bytes;
      if (!layout_.is_paired) {
        EncodeRow(spec_, from, head_dim, to);
        continue;
      }
      uint16_t row[kMaxHeadDim];
      EncodeRow(spec_, from, head_dim, row);
      uint16_t* pairs = reinterpret_cast<uint16_t*>(to);
      for (int64_t d = 0; d < head_dim; ++d) pairs[2 * d] = row[d];
    }
  }

  const CpuKvStore& store_;
  const AttentionSpec& spec_;
  const KvLayout& layout_;
  const AppendEntry& entry_;
  const uint32_t kv_head_;
  const int64_t key_slice_;
  const int64_t value_slice_;
};

void AppendOneHead(const CpuKvStore& store, const AppendEntry& entry, uint32_t kv_head) {
  HeadAppender(store, entry, kv_head).Append();
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

HWY_EXPORT(AppendOneHead);

void AppendHead(const CpuKvStore& store, const AppendEntry& entry, uint32_t kv_head) {
  HWY_DYNAMIC_DISPATCH(AppendOneHead)(store, entry, kv_head);
}

void CopyPage(const CpuKvStore& store, const PageCopy& copy) {
  const KvLayout& layout = store.layout();
  for (int64_t layer = 0; layer < layout.num_layers; ++layer) {
    // Whole blocks: whatever lies behind the last slot, nothing reads it.
    const int64_t slots = std::min<int64_t>(
        layout.page_size,
        (int64_t{copy.slots_per_layer[layer]} + kBlockKeys - 1) / kBlockKeys * kBlockKeys);
    const size_t key_bytes = static_cast<size_t>(slots * layout.head_dim_qk * layout.element_bytes);
    const size_t value_bytes =
        static_cast<size_t>(slots * layout.head_dim_v * layout.element_bytes);
    for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
      const int64_t keys = layout.KeySliceOffset(layer, head);
      const int64_t values = layout.ValueSliceOffset(layer, head);
      std::memcpy(store.PageAt(copy.target) + keys, store.PageAt(copy.source) + keys, key_bytes);
      std::memcpy(store.PageAt(copy.target) + values, store.PageAt(copy.source) + values,
                  value_bytes);
    }
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
