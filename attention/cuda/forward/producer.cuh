// The loading side of a forward kernel: keeps the rings of key and value tiles full, last tile
// first.
#pragma once

#include <cstdint>

#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"
#include "attention/cuda/forward/scheduler.cuh"
#include "attention/cuda/forward/shared.cuh"
#include "attention/cuda/ptx/async_copy.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/ptx/tma.cuh"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {

// Loads key tiles as boxes: lane i of one warp looks up and issues box i.
template <ForwardConfig kConfig>
struct BoxLoader {
  struct Place {
    int32_t block;  // of the keys; not a block if the box holds no key
    int32_t group;  // of 8 slots within the block
  };
  static constexpr int32_t kNoBlock = -1;

  const ForwardArgs& args;
  const int lane;

  __device__ __forceinline__ Place Find(const ForwardTask& task, int32_t tile) const {
    const int32_t row = lane * args.box_rows;
    const int32_t key = tile * kConfig.tile_kv + row;
    if (row >= kConfig.tile_kv || key >= task.kv_end || tile < task.first) return {kNoBlock, 0};
    const KvSlot at = args.pool.SlotOf(key);
    const int32_t page = task.page_table[at.page_index];
    return {static_cast<int32_t>(args.pool.BlockOf(page, task.key_block)), at.slot / kRowGroup};
  }

  // REQUIRES: the tile holds a key, so at least one box is loaded.
  __device__ __forceinline__ void Issue(const Place& place, int32_t block_shift, uint8_t* target,
                                        ptx::Barrier* full) const {
    const bool loads = place.block != kNoBlock;
    const int boxes = __popc(__ballot_sync(~0u, loads));
    const int box_bytes = args.box_rows * kKvRowBytes;
    if (lane == 0) ptx::ArriveExpectingBytes(full, boxes * box_bytes);
    __syncwarp();
    if (loads) {
      ptx::LoadBox(target + lane * box_bytes, &args.kv_map, full,
                   ptx::Box5{0, 0, 0, place.group, place.block + block_shift});
    }
  }
};

// Loads key tiles in pieces of 16 bytes by four warps, whatever the page size: half a warp brings a
// row. Lane l of warp w looks up row 8 (l / 2) + 2 w + l % 2, so that each warp looks up what it
// copies. Rows without a key become zeros.
template <ForwardConfig kConfig>
struct GatherLoader {
  struct Place {
    int64_t offset;  // of the keys of this lane's row in the pool; negative if there is none
  };

  const ForwardArgs& args;
  const int lane;
  const int warp;

  __device__ __forceinline__ Place Find(const ForwardTask& task, int32_t tile) const {
    const int32_t row = 8 * (lane / 2) + 2 * warp + lane % 2;
    const int32_t key = tile * kConfig.tile_kv + row;
    if (key >= task.kv_end || tile < task.first) return {-1};
    const KvSlot at = args.pool.SlotOf(key);
    const int64_t block = args.pool.BlockOf(task.page_table[at.page_index], task.key_block);
    return {args.pool.OffsetOf(block, at.slot)};
  }

  __device__ __forceinline__ void Issue(const Place& place, int32_t block_shift, uint8_t* target,
                                        ptx::Barrier* full) const {
    const int64_t shift = block_shift * args.pool.block_bytes();
    const int chunk = lane % kChunksPerRow;
    const uint32_t target_smem = ptx::SharedAddress(target);
#pragma unroll 4  // of 16: more needs more registers than a producer has
    for (int i = 0; i < kConfig.tile_kv / 8; ++i) {
      const int64_t offset = __shfl_sync(~0u, place.offset, 2 * i + lane / kChunksPerRow);
      const int row = 8 * i + 2 * warp + lane / kChunksPerRow;
      const bool is_valid = offset >= 0;
      const uint8_t* source =
          args.pool.base + (is_valid ? offset + shift : 0) + chunk * kChunkBytes;
      ptx::CopyAsync16(target_smem + GroupedTileOffset(row, chunk), source, is_valid);
    }
    ptx::ArriveAfterAsyncCopies(full);
  }
};

template <ForwardConfig kConfig>
struct ForwardProducer {
  using Shared = ForwardShared<kConfig>;

  const ForwardArgs& args;
  Shared& shared;
  const int warp;
  const int lane;
  RingPlace<Shared::kTaskSlots> read;
  RingPlace<kConfig.stages> keys, values;
  uint32_t query_parity = 0;

  __device__ __forceinline__ void LoadQueries(const ForwardTask& task) {
    ptx::WaitForPhase(&shared.query_empty, query_parity ^ 1);
    query_parity ^= 1;
    if (lane == 0) {
      const int32_t rows = args.rows.QueriesIn(kConfig.tile_q) * args.rows.group_size;
      const int32_t head = task.kv_head * args.rows.group_size;
      ptx::ArriveExpectingBytes(&shared.query_full, rows * kKvRowBytes);
      ptx::LoadBox(shared.query, &args.query_map, &shared.query_full,
                   ptx::Box3{0, head, task.q_row});
      ptx::LoadBox(shared.query + Shared::kQueryBytes / 2, &args.query_map, &shared.query_full,
                   ptx::Box3{64, head, task.q_row});
    }
    __syncwarp();
  }

  template <typename Loader>
  __device__ __forceinline__ void LoadKeys(const Loader& loader,
                                           const typename Loader::Place& place) {
    ptx::WaitForPhase(&shared.key_empty[keys.slot], keys.parity ^ 1);
    loader.Issue(place, 0, shared.keys[keys.slot], &shared.key_full[keys.slot]);
    keys.Advance();
  }

  template <typename Loader>
  __device__ __forceinline__ void LoadValues(const Loader& loader,
                                             const typename Loader::Place& place) {
    ptx::WaitForPhase(&shared.value_empty[values.slot], values.parity ^ 1);
    loader.Issue(place, args.pool.num_kv_heads, shared.values[values.slot],
                 &shared.value_full[values.slot]);
    values.Advance();
  }

  // Keys of the last tile, queries, then keys of tile n - 1 and values of tile n: any other order
  // starves the first steps. Where all warps load, the first one schedules in between; else a warp
  // of its own does.
  template <typename Loader>
  __device__ __forceinline__ void Run(const Loader& loader, ForwardScheduler<kConfig>& scheduler) {
    const bool schedules = Shared::kLoadingWarps > 1 && warp == 0;
    if (schedules) scheduler.Publish();
    while (true) {
      const ForwardTask& task = shared.tasks[read.slot];
      ptx::WaitForPhase(&shared.task_full[read.slot], read.parity);
      if (task.is_end) return;
      if (schedules) scheduler.Draw();
      const bool sees_keys = task.sees_keys();
      typename Loader::Place place = loader.Find(task, task.last - 1);
      if (sees_keys) {
        LoadKeys(loader, place);
        if (warp == 0) LoadQueries(task);
      }
      if (schedules) scheduler.Publish();
      if (sees_keys) LoadRest(loader, task, place);
      __syncwarp();
      if (lane == 0) ptx::Arrive(&shared.task_empty[read.slot]);
      read.Advance();
    }
  }

  // `place` is that of the last tile, whose keys are on their way.
  template <typename Loader>
  __device__ __forceinline__ void LoadRest(const Loader& loader, const ForwardTask& task,
                                           typename Loader::Place place) {
    typename Loader::Place next = loader.Find(task, task.last - 2);
    for (int32_t tile = task.last - 2; tile >= task.first; --tile) {
      const typename Loader::Place after = loader.Find(task, tile - 1);
      LoadKeys(loader, next);
      LoadValues(loader, place);
      place = next;
      next = after;
    }
    LoadValues(loader, place);
  }
};

}  // namespace attn::cuda
