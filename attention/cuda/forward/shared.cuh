// Shared memory of a forward kernel, and the barriers that guard it.
//
//   name          arrives                          waits        says
//   query_full    copy engine (bytes)              consumers    query_smem holds the tile's queries
//   query_empty   each consumer warp               producer     all products that read it are done
//   key_full      copy engine (bytes), or          consumers    keys[slot] holds the tile
//                 each gathering thread
//   key_empty     each consumer warp               producers    keys[slot] may be overwritten
//   value_full, value_empty                                     the same for values[slot]
//   task_full     one scheduling thread            all          tasks[slot] is written
//   task_empty    each consumer and loading warp   scheduler    tasks[slot] may be overwritten
//
// A warp's own wait says nothing of its neighbours' products, so every warp arrives for itself.
#pragma once

#include <cstdint>

#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"
#include "attention/cuda/ptx/fence.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {

template <ForwardConfig kConfig>
struct ForwardShared {
  static constexpr int kQueryBytes = kConfig.tile_q * kConfig.head_dim * 2;
  static constexpr int kKvBytes = kConfig.tile_kv * kConfig.head_dim * 2;
  static constexpr int kConsumerWarps = 4 * kForwardConsumers;
  static constexpr int kLoadingWarps = kConfig.load == KvLoad::kBoxes ? 1 : 4;
  static constexpr int kTaskSlots = TaskSlotsOf(kConfig.load);

  alignas(1024) uint8_t query[kQueryBytes];
  uint8_t keys[kConfig.stages][kKvBytes];
  uint8_t values[kConfig.stages][kKvBytes];
  uint8_t staging[kQueryBytes];  // output; each consumer warp owns 16 rows
  ForwardTask tasks[kTaskSlots];
  ptx::Barrier query_full, query_empty;
  ptx::Barrier key_full[kConfig.stages], key_empty[kConfig.stages];
  ptx::Barrier value_full[kConfig.stages], value_empty[kConfig.stages];
  ptx::Barrier task_full[kTaskSlots], task_empty[kTaskSlots];

  // One thread; a barrier of the whole CTA follows.
  __device__ __forceinline__ void InitBarriers() {
    constexpr int kKvArrivals = kConfig.load == KvLoad::kBoxes ? 1 : 32 * kLoadingWarps;
    ptx::InitBarrier(&query_full, 1);
    ptx::InitBarrier(&query_empty, kConsumerWarps);
    for (int i = 0; i < kConfig.stages; ++i) {
      ptx::InitBarrier(&key_full[i], kKvArrivals);
      ptx::InitBarrier(&key_empty[i], kConsumerWarps);
      ptx::InitBarrier(&value_full[i], kKvArrivals);
      ptx::InitBarrier(&value_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < kTaskSlots; ++i) {
      ptx::InitBarrier(&task_full[i], 1);
      ptx::InitBarrier(&task_empty[i], kConsumerWarps + kLoadingWarps);
    }
    ptx::FenceBarrierInit();
  }
};

// A place in a ring of slots, and the parity of the phase that fills the slot this time.
template <int kSlots>
struct RingPlace {
  uint32_t slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace attn::cuda
