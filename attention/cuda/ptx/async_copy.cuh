// Copies from global to shared memory by single threads, and cache policies.
#pragma once

#include <cstdint>

#include "attention/cuda/ptx/mbarrier.cuh"

namespace attn::cuda::ptx {

// For data that nobody reads again soon: it leaves L2 first.
__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// 16 bytes; zeros where `is_valid` is false (then the source is not read).
__device__ __forceinline__ void CopyAsync16(uint32_t shared_target, const void* global_source,
                                            bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_target),
               "l"(global_source), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CopyAsync16(uint32_t shared_target, const void* global_source,
                                            bool is_valid, uint64_t policy) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_target),
      "l"(global_source), "r"(bytes), "l"(policy)
      : "memory");
}

}  // namespace attn::cuda::ptx
