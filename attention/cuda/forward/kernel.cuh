// Forward attention of many query rows over paged keys and values, for Hopper. Persistent: every
// CTA draws work tiles of 128 packed query rows, longest first (forward/scheduler.cuh). One
// warpgroup loads (forward/producer.cuh), two compute (forward/consumer.cuh); forward/shared.cuh
// lists the barriers.
#pragma once

#include <cstdint>

#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"
#include "attention/cuda/forward/consumer.cuh"
#include "attention/cuda/forward/producer.cuh"
#include "attention/cuda/forward/scheduler.cuh"
#include "attention/cuda/forward/shared.cuh"
#include "attention/cuda/ptx/regs.cuh"
#include "attention/cuda/ptx/tma.cuh"

namespace attn::cuda {

// Registers move within what the CTA got at its start, 168 for each thread; claiming more would
// wait for ever.
template <KvLoad kLoad>
struct ForwardRegisters {
  static constexpr int kStart = 65536 / kForwardThreads / 8 * 8;
  static constexpr int kProducer = kLoad == KvLoad::kBoxes ? 24 : 40;
  static constexpr int kConsumer = kLoad == KvLoad::kBoxes ? 240 : 232;
  static_assert(kProducer + kForwardConsumers * kConsumer <= (1 + kForwardConsumers) * kStart);
};

template <typename Instance>
__global__ void __launch_bounds__(kForwardThreads, 1)
    AttendForward(const __grid_constant__ ForwardArgs args) {
  constexpr ForwardConfig kConfig = Instance::kConfig;
  using Registers = ForwardRegisters<kConfig.load>;
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<ForwardShared<kConfig>*>(shared_bytes);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = __shfl_sync(~0u, thread / 32, 0);  // within the warpgroup
  if (threadIdx.x == 0) {
    ptx::PrefetchTensorMap(&args.query_map);
    if constexpr (kConfig.load == KvLoad::kBoxes) ptx::PrefetchTensorMap(&args.kv_map);
    shared.InitBarriers();
    if (args.cta_cycles != nullptr) args.cta_cycles[blockIdx.x] = -clock64();
  }
  __syncthreads();
  if (warpgroup == 0) {
    ptx::ReleaseRegisters<Registers::kProducer>();
    ForwardProducer<kConfig> producer{args, shared, warp, thread % 32};
    ForwardScheduler<kConfig> scheduler{args, shared, thread % 32};
    if constexpr (kConfig.load == KvLoad::kBoxes) {
      if (warp == 0) producer.Run(BoxLoader<kConfig>{args, thread % 32}, scheduler);
      if (warp == 1) scheduler.Run();
    } else {
      producer.Run(GatherLoader<kConfig>{args, thread % 32, warp}, scheduler);
    }
  } else {
    ptx::ClaimRegisters<Registers::kConsumer>();
    ForwardConsumer<kConfig> consumer{args, shared, __shfl_sync(~0u, warpgroup - 1, 0), warp,
                                      thread % 32 == 0};
    consumer.Run();
    if (args.cta_cycles != nullptr && threadIdx.x == 128) {
      args.cta_cycles[blockIdx.x] += clock64();
    }
  }
}

}  // namespace attn::cuda
