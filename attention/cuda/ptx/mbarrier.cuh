// Barriers in shared memory that count arrivals and bytes: one PTX instruction, one function.
// A phase ends when all arrivals and all expected bytes have come; waiters name the phase by its
// parity, which starts at 0 and flips with every completed phase.
#pragma once

#include <cstdint>

namespace attn::cuda::ptx {

using Barrier = uint64_t;

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void InitBarrier(Barrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// One arrival that also announces how many bytes the copy engine will write in this phase.
__device__ __forceinline__ void ArriveExpectingBytes(Barrier* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Arrives once all cp.async of this thread so far have landed. Counts among the arrivals the
// barrier was initialised with.
__device__ __forceinline__ void ArriveAfterAsyncCopies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

__device__ __forceinline__ void WaitForPhase(Barrier* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished_%=;\n"
      "bra again_%=;\n"
      "finished_%=:\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace attn::cuda::ptx
