// Matrix products of one warp, and the moves between shared memory and their fragments.
#pragma once

#include <cstdint>

namespace attn::cuda::ptx {

// d[16, 8] += a[16, 16] * b[16, 8], bf16 inputs, fp32 sums.
__device__ __forceinline__ void MultiplyM16N8K16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16-bit elements; lane 8 m + r names the 16 bytes of row r of matrix m.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], uint32_t shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_row)
               : "memory");
}

__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], uint32_t shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_row)
               : "memory");
}

__device__ __forceinline__ void StoreMatrices(uint32_t shared_row, uint32_t r0, uint32_t r1,
                                              uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_row),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// An 8 x 8 matrix of 16-bit elements, spread over the warp, transposed.
__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t source) {
  uint32_t target;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(target) : "r"(source));
  return target;
}

}  // namespace attn::cuda::ptx
