// Brings blocks of 16 keys and values into a warp's own ring of stages. A stage is a grouped tile
// (tile/swizzle.h) of 16 keys and one of 16 values. Nobody but the warp itself fills or reads it.
#pragma once

#include <cstdint>

#include "attention/cuda/decode/args.h"
#include "attention/cuda/decode/config.h"
#include "attention/cuda/decode/shared_layout.h"
#include "attention/cuda/ptx/async_copy.cuh"
#include "attention/cuda/ptx/load.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/ptx/tma.cuh"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {

// The blocks of an extent that one warp takes and that hold visible keys. Number n lies at key
// first_key + n * kDecodeWarps * kDecodeBlock.
struct WarpBlocks {
  int32_t key_block;  // of the entry's layer and the KV head, within a page
  int32_t first_key;
  int32_t kv_end;
  int32_t skipped;  // blocks of the warp before the first
  int32_t count;    // at most 32
  bool evicts_first;

  __device__ __forceinline__ int32_t KeyOf(int32_t number) const {
    return first_key + number * kDecodeWarps * kDecodeBlock;
  }
};

// Whole blocks by the copy engine. Lane n looks up the page of the warp's block n of the extent,
// once and for all, and before anything but the item is known.
struct DecodeBoxLoader {
  static constexpr int kArrivals = 1;

  const DecodeArgs& args;
  const int lane;
  int32_t own_page = 0;
  int32_t own_group = 0;

  __device__ __forceinline__ DecodeBoxLoader(const DecodeArgs& launch, const DecodeItem& item,
                                             int warp, int own_lane)
      : args(launch), lane(own_lane) {
    const int32_t key = item.first_leaf * kLeafKeys + (warp + lane * kDecodeWarps) * kDecodeBlock;
    if (lane >= item.num_leaves * kBlocksPerWarpAndLeaf || key >= item.kv_end) return;
    const KvSlot at = args.pool.SlotOf(key);
    own_page = ptx::LoadWord(item.page_table + at.page_index);
    own_group = at.slot / kRowGroup;
  }

  __device__ __forceinline__ void Start(const DecodeItem&, const WarpBlocks&) {}

  __device__ __forceinline__ void Issue(const WarpBlocks& blocks, int32_t number, uint8_t* stage,
                                        ptx::Barrier* full) {
    const int32_t page = __shfl_sync(~0u, own_page, blocks.skipped + number);
    const int32_t group = __shfl_sync(~0u, own_group, blocks.skipped + number);
    if (lane != 0) return;
    const auto block = static_cast<int32_t>(args.pool.BlockOf(page, blocks.key_block));
    const ptx::Box5 keys{0, 0, 0, group, block};
    const ptx::Box5 values{0, 0, 0, group, block + args.pool.num_kv_heads};
    ptx::ArriveExpectingBytes(full, kDecodeStageBytes);
    if (blocks.evicts_first) {
      const uint64_t policy = ptx::EvictFirstPolicy();
      ptx::LoadBox(stage, &args.kv_map, full, keys, policy);
      ptx::LoadBox(stage + kDecodeTileBytes, &args.kv_map, full, values, policy);
    } else {
      ptx::LoadBox(stage, &args.kv_map, full, keys);
      ptx::LoadBox(stage + kDecodeTileBytes, &args.kv_map, full, values);
    }
  }
};

// Any page size: lane n (and n + 16) looks up row n of the block after the one being copied. Rows
// without a key become zeros.
struct DecodeGatherLoader {
  static constexpr int kArrivals = 32;

  const DecodeArgs& args;
  const int lane;
  const int32_t* page_table = nullptr;
  int64_t own_offset = -1;  // of the next block's row in the pool; negative if there is none

  __device__ __forceinline__ DecodeGatherLoader(const DecodeArgs& launch, const DecodeItem&, int,
                                                int own_lane)
      : args(launch), lane(own_lane) {}

  __device__ __forceinline__ void Start(const DecodeItem& item, const WarpBlocks& blocks) {
    page_table = item.page_table;
    own_offset = Find(blocks, 0);
  }

  __device__ __forceinline__ int64_t Find(const WarpBlocks& blocks, int32_t number) const {
    const int32_t key = blocks.KeyOf(number) + lane % kDecodeBlock;
    if (number >= blocks.count || key >= blocks.kv_end) return -1;
    const KvSlot at = args.pool.SlotOf(key);
    const int64_t block = args.pool.BlockOf(page_table[at.page_index], blocks.key_block);
    return args.pool.OffsetOf(block, at.slot);
  }

  // REQUIRES: called with numbers 0, 1, 2 …
  __device__ __forceinline__ void Issue(const WarpBlocks& blocks, int32_t number, uint8_t* stage,
                                        ptx::Barrier* full) {
    const int64_t offset = own_offset;
    own_offset = Find(blocks, number + 1);
    const int64_t to_values = args.pool.num_kv_heads * args.pool.block_bytes();
    const uint64_t policy = ptx::EvictFirstPolicy();
    const uint32_t stage_smem = ptx::SharedAddress(stage);
    const int chunk = lane % kChunksPerRow;
#pragma unroll 2  // of 8: more needs more registers than three CTAs on an SM leave
    for (int i = 0; i < kDecodeBlock / 2; ++i) {
      const int row = 2 * i + lane / kChunksPerRow;
      const int64_t row_offset = __shfl_sync(~0u, offset, row);
      const bool is_valid = row_offset >= 0;
      const uint8_t* keys = args.pool.base + (is_valid ? row_offset : 0) + chunk * kChunkBytes;
      const uint32_t target = stage_smem + GroupedTileOffset(row, chunk);
      if (blocks.evicts_first) {
        ptx::CopyAsync16(target, keys, is_valid, policy);
        ptx::CopyAsync16(target + kDecodeTileBytes, keys + to_values, is_valid, policy);
      } else {
        ptx::CopyAsync16(target, keys, is_valid);
        ptx::CopyAsync16(target + kDecodeTileBytes, keys + to_values, is_valid);
      }
    }
    ptx::ArriveAfterAsyncCopies(full);
  }
};

}  // namespace attn::cuda
