// Ordering: between ordinary stores and the copy engine or the tensor cores, among named groups of
// threads, and between kernels that overlap.
#pragma once

#include <cstdint>

namespace attn::cuda::ptx {

// Ordinary accesses to shared memory before, tensor cores and copy engine after.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Hardware barrier `id` (1 to 15; 0 is __syncthreads) among `threads` threads, whole warps.
__device__ __forceinline__ void SyncNamed(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The dependent kernel may start now; what it needs from this one it waits for.
__device__ __forceinline__ void LaunchDependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Returns once the kernel before has ended and its writes are visible.
__device__ __forceinline__ void WaitForPrecedingKernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace attn::cuda::ptx
