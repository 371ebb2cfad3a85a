// Loads of whole records, started where they are written and not where the compiler likes.
#pragma once

#include <cstdint>

namespace attn::cuda::ptx {

// A record that nobody writes while the kernel runs. All of it is asked for at once.
template <typename Record>
__device__ __forceinline__ Record LoadRecord(const Record* source) {
  static_assert(sizeof(Record) % 16 == 0 && alignof(Record) == 16);
  union Words {
    uint32_t words[sizeof(Record) / 4];
    Record record;
    __device__ Words() {}
  } loaded;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Record) / 4); i += 4) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(loaded.words[i]), "=r"(loaded.words[i + 1]), "=r"(loaded.words[i + 2]),
                   "=r"(loaded.words[i + 3])
                 : "l"(reinterpret_cast<const uint32_t*>(source) + i));
  }
  return loaded.record;
}

__device__ __forceinline__ int32_t LoadWord(const int32_t* source) {
  int32_t word;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(word) : "l"(source));
  return word;
}

}  // namespace attn::cuda::ptx
