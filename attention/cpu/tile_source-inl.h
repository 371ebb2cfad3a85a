// Where the keys and values of one tile are: pointers into the pages where kernels can read them as
// they are, else a float copy of the tile in scratch, in the blocked layout.
#include <algorithm>
#include <cstring>

#include "attention/cpu/convert-inl.h"
#include "attention/cpu/head_work.h"
#include "attention/cpu/scratch.h"
#include "attention/cpu/tile_kernel-inl.h"

#if defined(ATTN_CPU_TILE_SOURCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_TILE_SOURCE_INL_H_
#undef ATTN_CPU_TILE_SOURCE_INL_H_
#else
#define ATTN_CPU_TILE_SOURCE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

class TileSource {
 public:
  // Block pointers of a tile, and of what comes after it for the sake of prefetching.
  using Blocks = const void * [kTileBlocks + kPrefetchBlocks];

  // With `as_float` every tile is copied; REQUIRES it unless the layout is blocked.
  TileSource(const HeadWork& work, bool as_float, float* tile)
      : work_(work),
        layout_(*work.layout),
        dtype_(work.spec->kv_dtype),
        as_float_(as_float),
        tile_(tile),
        key_slice_(layout_.KeySliceOffset(work.entry->layer, work.kv_head)),
        value_slice_(layout_.ValueSliceOffset(work.entry->layer, work.kv_head)) {}

  // Makes keys [begin, end) readable; both lie in the same tile. Of keys and values only the last
  // made are valid if they are copied.
  void LoadKeys(int64_t begin, int64_t end) {
    if (!as_float_) {
      FillBlocks(begin, end, key_slice_, layout_.head_dim_qk, key_blocks_);
      FillBlocks(begin, end, value_slice_, layout_.head_dim_v, value_blocks_);
      PointAhead(begin, end, value_blocks_, key_blocks_);
      PointAhead(begin, end, key_blocks_, value_blocks_);
      return;
    }
    FillScratchBlocks(layout_.head_dim_qk * kBlockKeys, key_blocks_);
    if (layout_.is_blocked) {
      CopyKeyBlocks(begin, end);
    } else {
      CopyKeyRows(begin, end);
    }
  }

  void LoadValues(int64_t begin, int64_t end) {
    if (!as_float_) return;  // done with the keys
    FillScratchBlocks(layout_.head_dim_v * kBlockKeys, value_blocks_);
    if (layout_.is_paired) {
      CopyValuePairs(begin, end);
    } else {
      CopyValueRows(begin, end);
    }
  }

  const void* const* key_blocks() const { return key_blocks_; }
  const void* const* value_blocks() const { return value_blocks_; }

 private:
  const uint8_t* PageOf(int64_t key) const {
    const int64_t page = work_.entry->pages[static_cast<int32_t>(key / layout_.page_size)];
    return work_.store_base + page * layout_.page_bytes();
  }
  const uint8_t* SlotAt(int64_t key, int64_t slice, int64_t head_dim) const {
    return PageOf(key) + slice + key % layout_.page_size * head_dim * layout_.element_bytes;
  }

  // Pages of the blocked layout hold whole blocks of K, and of V rows, at the same distances.
  void FillBlocks(int64_t begin, int64_t end, int64_t slice, int64_t head_dim, Blocks& blocks) {
    const int64_t block_bytes = kBlockKeys * head_dim * layout_.element_bytes;
    int64_t key = begin / kBlockKeys * kBlockKeys;
    while (key < end) {
      const uint8_t* at = SlotAt(key, slice, head_dim);
      const int64_t page_end = std::min(end, (key / layout_.page_size + 1) * layout_.page_size);
      for (; key < page_end; key += kBlockKeys, at += block_bytes) {
        blocks[key % kTileKeys / kBlockKeys] = at;
      }
    }
  }

  // After the last block of K come the first blocks of V, and the other way round: the next tile's
  // pages are found only when it is loaded, and prefetching a tile's own first lines is harmless.
  void PointAhead(int64_t begin, int64_t end, const Blocks& next, Blocks& blocks) {
    const int64_t first = begin % kTileKeys / kBlockKeys;
    const int64_t last = (end - 1) % kTileKeys / kBlockKeys;
    for (int64_t i = 1; i <= static_cast<int64_t>(kPrefetchBlocks); ++i) {
      blocks[last + i] = next[std::min(first + i - 1, last)];
    }
  }

  void FillScratchBlocks(int64_t block_floats, Blocks& blocks) {
    for (int64_t b = 0; b < kTileBlocks + static_cast<int64_t>(kPrefetchBlocks); ++b) {
      blocks[b] = tile_ + std::min<int64_t>(b, kTileBlocks - 1) * block_floats;
    }
  }

  void CopyKeyBlocks(int64_t begin, int64_t end) {
    const int64_t block_floats = kBlockKeys * layout_.head_dim_qk;
    FillBlocks(begin, end, key_slice_, layout_.head_dim_qk, value_blocks_);
    for (int64_t key = begin / kBlockKeys * kBlockKeys; key < end; key += kBlockKeys) {
      const int64_t block = key % kTileKeys / kBlockKeys;
      float* to = tile_ + block * block_floats;
      if (layout_.is_paired) {
        SplitKeyPairs(static_cast<const uint32_t*>(value_blocks_[block]), to);
      } else {
        LoadRow(dtype_, value_blocks_[block], block_floats, to);
      }
    }
  }

  void SplitKeyPairs(const uint32_t* from, float* to) {
    const FloatTag tag;
    for (int64_t pair = 0; pair < layout_.head_dim_qk / 2; ++pair) {
      for (size_t lane = 0; lane < kBlockKeys; lane += kLanes) {
        const auto words = PairBlocks::KeyPair(from, static_cast<size_t>(pair), lane);
        hn::StoreU(PairBlocks::Even(words), tag, to + pair * 2 * kBlockKeys + lane);
        hn::StoreU(PairBlocks::Odd(words), tag, to + (pair * 2 + 1) * kBlockKeys + lane);
      }
    }
  }

  void CopyKeyRows(int64_t begin, int64_t end) {
    const int64_t head_dim = layout_.head_dim_qk;
    float row[256];
    for (int64_t key = begin; key < end; ++key) {
      LoadRow(dtype_, SlotAt(key, key_slice_, head_dim), head_dim, row);
      const int64_t slot = key % kTileKeys;
      float* to = tile_ + slot / kBlockKeys * kBlockKeys * head_dim + slot % kBlockKeys;
      for (int64_t d = 0; d < head_dim; ++d) to[d * kBlockKeys] = row[d];
    }
  }

  void CopyValueRows(int64_t begin, int64_t end) {
    const int64_t head_dim = layout_.head_dim_v;
    for (int64_t key = begin; key < end; ++key) {
      LoadRow(dtype_, SlotAt(key, value_slice_, head_dim), head_dim,
              tile_ + key % kTileKeys * head_dim);
    }
  }

  // Whole pairs are copied: the other half of a cut pair is never read.
  void CopyValuePairs(int64_t begin, int64_t end) {
    const FloatTag tag;
    const int64_t head_dim = layout_.head_dim_v;
    for (int64_t key = begin / 2 * 2; key < end; key += 2) {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(SlotAt(key, value_slice_, head_dim));
      float* even = tile_ + key % kTileKeys * head_dim;
      float* odd = even + head_dim;
      // At an odd multiple of 8 dims the last vector spills into the row that is written next.
      for (int64_t d = 0; d < head_dim; d += static_cast<int64_t>(kLanes)) {
        hn::StoreU(PairBlocks::Even(PairBlocks::ValuePair(from, 0, static_cast<size_t>(d), 0)), tag,
                   even + d);
      }
      for (int64_t d = 0; d < head_dim; d += static_cast<int64_t>(kLanes)) {
        hn::StoreU(PairBlocks::Odd(PairBlocks::ValuePair(from, 0, static_cast<size_t>(d), 0)), tag,
                   odd + d);
      }
    }
  }

  const HeadWork& work_;
  const KvLayout& layout_;
  const DType dtype_;
  const bool as_float_;
  float* const tile_;
  const int64_t key_slice_;
  const int64_t value_slice_;
  Blocks key_blocks_ = {};
  Blocks value_blocks_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_TILE_SOURCE_INL_H_
