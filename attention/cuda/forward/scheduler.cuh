// Which work tiles a CTA computes: draws them from the launch's list and describes them to the
// loading and computing warps. One warp.
#pragma once

#include <cstdint>

#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"
#include "attention/cuda/forward/shared.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/ptx/tma.cuh"

namespace attn::cuda {

template <ForwardConfig kConfig>
struct ForwardScheduler {
  using Shared = ForwardShared<kConfig>;

  const ForwardArgs& args;
  Shared& shared;
  const int lane;
  RingPlace<Shared::kTaskSlots> written;  // next task slot to write
  int32_t drawn = static_cast<int32_t>(blockIdx.x);

  // Number of the next work item, for Publish; beyond the end if there is none. The CTA that draws
  // last of all leaves the counter as the next launch wants it.
  __device__ __forceinline__ void Draw() {
    if (lane == 0) {
      const int32_t ticket = atomicAdd(args.next_item, 1);
      if (ticket == args.num_items - 1) *args.next_item = 0;
      drawn = ticket + static_cast<int32_t>(gridDim.x);
    }
  }

  __device__ __forceinline__ void WaitForSlot() const {
    ptx::WaitForPhase(&shared.task_empty[written.slot], written.parity ^ 1);
  }

  // Describes what was drawn. Returns false at the end of the list, which is described too.
  __device__ __forceinline__ bool Publish() {
    WaitForSlot();
    const int32_t item = __shfl_sync(~0u, drawn, 0);  // in a uniform register, as all made of it
    const bool has_item = item < args.num_items;
    if (lane == 0) {
      ForwardTask& task = shared.tasks[written.slot];
      if (has_item) {
        task = MakeForwardTask(args, args.items[item], kConfig.tile_q, kConfig.tile_kv);
        PrefetchQueries(task);
      } else {
        task.is_end = true;
      }
      ptx::Arrive(&shared.task_full[written.slot]);
    }
    __syncwarp();
    written.Advance();
    return has_item;
  }

  __device__ __forceinline__ void PrefetchQueries(const ForwardTask& task) const {
    const int32_t head = task.kv_head * args.rows.group_size;
    ptx::PrefetchBox(&args.query_map, {0, head, task.q_row});
    ptx::PrefetchBox(&args.query_map, {64, head, task.q_row});
  }

  // For a warp that does nothing else. Draws only when there is room: a tile that waits here is one
  // that no other CTA can begin.
  __device__ __forceinline__ void Run() {
    while (Publish()) {
      WaitForSlot();
      Draw();
    }
  }
};

}  // namespace attn::cuda
