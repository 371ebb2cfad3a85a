// What this processor can do at best, for a benchmark to compare with: multiply-adds in registers,
// a matrix product of OpenBLAS where it is installed, and reading memory.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace attn::bench {

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline bool HasAvx512() { return __builtin_cpu_supports("avx512f") != 0; }

// In assembly: compilers spill the accumulators of the same loop written with intrinsics.
inline double FmaGigaflops() {
  constexpr int64_t kSteps = 60'000;
  constexpr int kChains = 12;
  int64_t steps = kSteps;
  const double start = Seconds();
  if (HasAvx512()) {
    asm volatile(
        "1:\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm4\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm5\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm6\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm7\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm8\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm9\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm10\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm11\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm12\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm13\n\t"
        "vfmadd231ps %%zmm0, %%zmm1, %%zmm14\n\tvfmadd231ps %%zmm0, %%zmm1, %%zmm15\n\t"
        "dec %0\n\tjnz 1b\n\tvzeroupper"
        : "+r"(steps)
        :
        : "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
          "xmm13", "xmm14", "xmm15", "cc");
  } else {
    asm volatile(
        "1:\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm4\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm5\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm6\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm7\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm8\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm9\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm10\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm11\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm12\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm13\n\t"
        "vfmadd231ps %%ymm0, %%ymm1, %%ymm14\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm15\n\t"
        "dec %0\n\tjnz 1b\n\tvzeroupper"
        : "+r"(steps)
        :
        : "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
          "xmm13", "xmm14", "xmm15", "cc");
  }
  const double lanes = HasAvx512() ? 16 : 8;
  return 2 * lanes * kChains * kSteps / (Seconds() - start) * 1e-9;
}

// OpenBLAS, loaded at run time so that nothing depends on it.
class Sgemm {
 public:
  Sgemm() {
    library_ = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    multiply_ = reinterpret_cast<Multiply>(dlsym(library_, "cblas_sgemm"));
    const auto set_threads =
        reinterpret_cast<void (*)(int)>(dlsym(library_, "openblas_set_num_threads"));
    if (set_threads != nullptr) set_threads(1);
    a_.assign(kSize * kSize, 0.5f);
    b_.assign(kSize * kSize, 0.25f);
    c_.assign(kSize * kSize, 0.0f);
  }
  // The library stays loaded: it may own threads.

  bool is_available() const { return multiply_ != nullptr; }

  double Gigaflops() {
    constexpr int kRowMajor = 101, kNoTranspose = 111, kN = static_cast<int>(kSize);
    const double start = Seconds();
    multiply_(kRowMajor, kNoTranspose, kNoTranspose, kN, kN, kN, 1.0f, a_.data(), kN, b_.data(), kN,
              0.0f, c_.data(), kN);
    return 2.0 * kSize * kSize * kSize / (Seconds() - start) * 1e-9;
  }

 private:
  static constexpr size_t kSize = 768;
  using Multiply = void (*)(int, int, int, int, int, int, float, const float*, int, const float*,
                            int, float, float*, int);
  void* library_ = nullptr;
  Multiply multiply_ = nullptr;
  std::vector<float> a_, b_, c_;
};

using Line = uint64_t __attribute__((vector_size(64), aligned(64)));

template <int kStreams>
__attribute__((target("avx2,avx512f"), noinline)) uint64_t ReadStreams(const char* data,
                                                                       int64_t bytes) {
  Line sums[kStreams] = {};
  const int64_t part = bytes / kStreams / 64 * 64;
  for (int64_t at = 0; at < part; at += 64) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* line = data + s * part + at;
      if (kStreams > 1) __builtin_prefetch(line + 2048, 0, 2);
      sums[s] += *reinterpret_cast<const Line*>(line);
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] += sums[s];
  return sums[0][0];
}

template <int kStreams>
__attribute__((target("avx2"), noinline)) uint64_t ReadStreamsNarrow(const char* data,
                                                                     int64_t bytes) {
  using Half = uint64_t __attribute__((vector_size(32), aligned(32)));
  Half sums[kStreams] = {};
  const int64_t part = bytes / kStreams / 64 * 64;
  for (int64_t at = 0; at < part; at += 64) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const Half* line = reinterpret_cast<const Half*>(data + s * part + at);
      if (kStreams > 1) __builtin_prefetch(line + 64, 0, 2);
      sums[s] += line[0] + line[1];
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] += sums[s];
  return sums[0][0];
}

// A buffer in huge pages that is read piece by piece, each piece cold when its turn comes again.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int64_t bytes) : bytes_(bytes) {
    data_ = static_cast<char*>(mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) std::abort();
    madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    for (int64_t i = 0; i < bytes; i += 4096) data_[i] = 1;
  }
  ~ReadBandwidth() { munmap(data_, static_cast<size_t>(bytes_)); }
  ReadBandwidth(const ReadBandwidth&) = delete;
  ReadBandwidth& operator=(const ReadBandwidth&) = delete;

  // Gigabytes per second of one pass over the next `bytes` with 1, 4 or 8 streams per thread.
  double Read(int64_t bytes, int streams, int num_threads) {
    bytes = std::min(bytes, bytes_);
    if (at_ + bytes > bytes_) at_ = 0;
    const char* from = data_ + at_;
    at_ += bytes / 4096 * 4096;
    const int64_t share = bytes / num_threads / 4096 * 4096;
    std::vector<std::thread> threads;
    const double start = Seconds();
    for (int i = 1; i < num_threads; ++i) {
      threads.emplace_back([=, this] { ReadShare(from + i * share, share, streams); });
    }
    ReadShare(from, share, streams);
    for (std::thread& thread : threads) thread.join();
    return static_cast<double>(share * num_threads) / (Seconds() - start) * 1e-9;
  }

 private:
  void ReadShare(const char* from, int64_t bytes, int streams) {
    uint64_t sum;
    if (HasAvx512()) {
      sum = streams == 1   ? ReadStreams<1>(from, bytes)
            : streams == 4 ? ReadStreams<4>(from, bytes)
                           : ReadStreams<8>(from, bytes);
    } else {
      sum = streams == 1   ? ReadStreamsNarrow<1>(from, bytes)
            : streams == 4 ? ReadStreamsNarrow<4>(from, bytes)
                           : ReadStreamsNarrow<8>(from, bytes);
    }
    asm volatile("" : : "r"(sum));
  }

  const int64_t bytes_;
  char* data_;
  int64_t at_ = 0;
};

}  // namespace attn::bench
