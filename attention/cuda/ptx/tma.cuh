// Tensor copies by the copy engine (TMA). One thread issues; a load completes on a barrier that
// counts its bytes, boxes cut off at the tensor's edge included (they are filled with zeros).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/cuda/ptx/mbarrier.cuh"

namespace attn::cuda::ptx {

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

struct Box3 {
  int32_t x, y, z;
};

struct Box5 {
  int32_t x, y, z, u, v;
};

__device__ __forceinline__ void LoadBox(void* target, const CUtensorMap* map, Barrier* barrier,
                                        Box3 at) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(target)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "r"(at.z)
      : "memory");
}

__device__ __forceinline__ void PrefetchBox(const CUtensorMap* map, Box3 at) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(at.x), "r"(at.y), "r"(at.z)
               : "memory");
}

__device__ __forceinline__ void LoadBox(void* target, const CUtensorMap* map, Barrier* barrier,
                                        Box5 at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(SharedAddress(target)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.u), "r"(at.v)
      : "memory");
}

__device__ __forceinline__ void LoadBox(void* target, const CUtensorMap* map, Barrier* barrier,
                                        Box5 at, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(SharedAddress(target)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.u), "r"(at.v),
      "l"(policy)
      : "memory");
}

}  // namespace attn::cuda::ptx
