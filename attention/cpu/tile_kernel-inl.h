// The two matrix products of attention on blocks of 16 keys, per instruction set: a few rows times
// a few vectors, accumulated in registers. Every score is one chain of fused operations over d and
// every output one chain over keys, whatever the shape of the kernel, so the shape never changes a
// bit.
#include <cstddef>
#include <type_traits>

#include "attention/cpu/convert-inl.h"
#include "attention/cpu/kv_layout.h"
#include "attention/cpu/scratch.h"

#if defined(ATTN_CPU_TILE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_TILE_KERNEL_INL_H_
#undef ATTN_CPU_TILE_KERNEL_INL_H_
#else
#define ATTN_CPU_TILE_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kLanes = HWY_LANES(float);
inline constexpr size_t kBlockVecs = kBlockKeys / kLanes;
// Accumulators of one row: 6 x 4 vectors fill the 32 registers of AVX-512, 6 x 2 the 16 of AVX2.
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t kRowVecs = 4;
#else
inline constexpr size_t kRowVecs = 2;
#endif
inline constexpr size_t kGroupBlocks = kRowVecs > kBlockVecs ? kRowVecs / kBlockVecs : 1;
// Rows of a prefill kernel. Kernels of fewer rows are for decode, where keys come from memory: they
// prefetch. The baseline has to be right, not fast; two rows bound what the compiler must unroll.
inline constexpr int kPrefillRowsPerBlock =
    HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 ? 6 : 2;
inline constexpr int kMaxDecodeRowsPerBlock = HWY_MIN(4, kPrefillRowsPerBlock);
// Blocks between the one in use and the one being prefetched: 64 keys, the measured optimum.
inline constexpr size_t kPrefetchBlocks = 4;

HWY_INLINE void PrefetchLine(const void* address) { __builtin_prefetch(address, 0, 2); }

// How a block of K or V is read, two d or two keys at a time.
struct FloatBlocks {
  using Element = float;
  struct Pair {
    const float* even;
    const float* odd;
  };
  static HWY_INLINE Pair KeyPair(const void* block, size_t pair, size_t lane) {
    const float* at = static_cast<const float*>(block) + pair * 2 * kBlockKeys + lane;
    return {at, at + kBlockKeys};
  }
  static HWY_INLINE Pair ValuePair(const void* block, size_t pair, size_t dim, size_t stride) {
    const float* at = static_cast<const float*>(block) + pair * 2 * stride + dim;
    return {at, at + stride};
  }
  static HWY_INLINE FloatVec Even(Pair pair) { return hn::LoadU(FloatTag(), pair.even); }
  static HWY_INLINE FloatVec Odd(Pair pair) { return hn::LoadU(FloatTag(), pair.odd); }
};

struct HalfBlocks {
  using Element = uint16_t;
  struct Pair {
    const uint16_t* even;
    const uint16_t* odd;
  };
  static HWY_INLINE Pair KeyPair(const void* block, size_t pair, size_t lane) {
    const uint16_t* at = static_cast<const uint16_t*>(block) + pair * 2 * kBlockKeys + lane;
    return {at, at + kBlockKeys};
  }
  static HWY_INLINE Pair ValuePair(const void* block, size_t pair, size_t dim, size_t stride) {
    const uint16_t* at = static_cast<const uint16_t*>(block) + pair * 2 * stride + dim;
    return {at, at + stride};
  }
  static HWY_INLINE FloatVec Even(Pair pair) { return LoadFp16(pair.even); }
  static HWY_INLINE FloatVec Odd(Pair pair) { return LoadFp16(pair.odd); }
};

// bfloat16 in pairs: the even element is the low half of a word, the odd one the high half.
struct PairBlocks {
  using Element = uint16_t;
  using Pair = hn::Vec<WordTag>;
  static HWY_INLINE Pair KeyPair(const void* block, size_t pair, size_t lane) {
    return hn::LoadU(WordTag(), static_cast<const uint32_t*>(block) + pair * kBlockKeys + lane);
  }
  static HWY_INLINE Pair ValuePair(const void* block, size_t pair, size_t dim, size_t stride) {
    return hn::LoadU(WordTag(), static_cast<const uint32_t*>(block) + pair * stride + dim);
  }
  static HWY_INLINE FloatVec Even(Pair pair) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(pair));
  }
  static HWY_INLINE FloatVec Odd(Pair pair) {
    return hn::BitCast(FloatTag(), hn::And(pair, hn::Set(WordTag(), 0xffff0000u)));
  }
};

// scores[r][16 b + i] = query[r] . key i of blocks[b], for kRows rows and kBlocks blocks.
template <class Blocks, int kRows, size_t kBlocks>
HWY_NOINLINE void DotBlocks(const float* HWY_RESTRICT query, size_t head_dim,
                            const void* const* blocks, float* HWY_RESTRICT scores,
                            float* HWY_RESTRICT lane_max) {
  constexpr size_t kVecs = kBlocks * kBlockVecs;
  const FloatTag tag;
  FloatVec sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(tag);
  }
  const void* block[kBlocks];
  const char* ahead[kBlocks];
#pragma GCC unroll 16
  for (size_t b = 0; b < kBlocks; ++b) {
    block[b] = blocks[b];
    ahead[b] = static_cast<const char*>(blocks[b + kPrefetchBlocks]);
  }
  constexpr size_t kPairBytes = 2 * kBlockKeys * sizeof(typename Blocks::Element);
  for (size_t pair = 0; pair < head_dim / 2; ++pair) {
    if constexpr (kRows < kPrefillRowsPerBlock) {
#pragma GCC unroll 16
      for (size_t b = 0; b < kBlocks; ++b) {
        PrefetchLine(ahead[b] + pair * kPairBytes);
        if constexpr (kPairBytes > 64) PrefetchLine(ahead[b] + pair * kPairBytes + 64);
      }
    }
    typename Blocks::Pair pairs[kVecs];
    FloatVec keys[kVecs];
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) {
      pairs[v] = Blocks::KeyPair(block[v / kBlockVecs], pair, v % kBlockVecs * kLanes);
      keys[v] = Blocks::Even(pairs[v]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const FloatVec q = hn::Set(tag, query[static_cast<size_t>(r) * kRowStride + 2 * pair]);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(q, keys[v], sums[r][v]);
    }
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) keys[v] = Blocks::Odd(pairs[v]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const FloatVec q = hn::Set(tag, query[static_cast<size_t>(r) * kRowStride + 2 * pair + 1]);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(q, keys[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    FloatVec top = hn::LoadU(tag, lane_max + static_cast<size_t>(r) * kMaxLanes);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) {
      hn::StoreU(sums[r][v], tag, scores + static_cast<size_t>(r) * kRowStride + v * kLanes);
      top = hn::Max(top, sums[r][v]);
    }
    hn::StoreU(top, tag, lane_max + static_cast<size_t>(r) * kMaxLanes);
  }
}

// sums[r] += weights[r][key] * values.
template <int kRows, size_t kVecs>
HWY_INLINE void AddWeighted(const float* HWY_RESTRICT weights, size_t key,
                            const FloatVec (&values)[kVecs], FloatVec (&sums)[kRows][kVecs]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const FloatVec weight = hn::Set(FloatTag(), weights[static_cast<size_t>(r) * kRowStride + key]);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(weight, values[v], sums[r][v]);
  }
}

// The same for one pair of keys or, where a range of keys is cut inside a pair, for one of them.
template <class Blocks, int kRows, size_t kVecs, bool kEven, bool kOdd>
HWY_INLINE void AddPair(const float* HWY_RESTRICT weights, size_t even_key, const void* block,
                        size_t pair, size_t dim, size_t head_dim, FloatVec (&sums)[kRows][kVecs]) {
  typename Blocks::Pair pairs[kVecs];
  FloatVec values[kVecs];
#pragma GCC unroll 16
  for (size_t v = 0; v < kVecs; ++v) {
    pairs[v] = Blocks::ValuePair(block, pair, dim + v * kLanes, head_dim);
  }
  if constexpr (kEven) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) values[v] = Blocks::Even(pairs[v]);
    AddWeighted<kRows, kVecs>(weights, even_key, values, sums);
  }
  if constexpr (kOdd) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) values[v] = Blocks::Odd(pairs[v]);
    AddWeighted<kRows, kVecs>(weights, even_key + 1, values, sums);
  }
}

// Two rows of kVecs vectors, or one row of pairs twice as long: the same number of lines.
template <class Blocks, size_t kVecs>
HWY_INLINE void PrefetchPair(const char* block, size_t pair, size_t dim, size_t head_dim) {
  constexpr size_t kElementBytes = sizeof(typename Blocks::Element);
  constexpr size_t kRowBytes = kVecs * kLanes * kElementBytes;
  const char* even;
  const char* odd;
  if constexpr (std::is_same_v<Blocks, PairBlocks>) {
    even = block + (pair * head_dim + dim) * 2 * kElementBytes;
    odd = even + kRowBytes;
  } else {
    even = block + (pair * 2 * head_dim + dim) * kElementBytes;
    odd = even + head_dim * kElementBytes;
  }
#pragma GCC unroll 16
  for (size_t byte = 0; byte < kRowBytes; byte += 64) {
    PrefetchLine(even + byte);
    PrefetchLine(odd + byte);
  }
}

// out[r] = rescale[r] * out[r] + sum over keys [begin, end) of the tile of weights[r][key] *
// V[key], for kRows rows and kVecs vectors of dims from `dim` on. Blocks and weights are those of
// the tile. A null rescale stands for ones. No key outside the range is multiplied, not even by
// zero.
template <class Blocks, int kRows, size_t kVecs>
HWY_NOINLINE void AccumulateBlocks(const float* HWY_RESTRICT weights, const void* const* blocks,
                                   size_t begin, size_t end, size_t dim, size_t head_dim,
                                   const float* HWY_RESTRICT rescale, float* HWY_RESTRICT out,
                                   size_t out_stride) {
  const FloatTag tag;
  FloatVec sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* row = out + static_cast<size_t>(r) * out_stride + dim;
    const FloatVec factor = hn::Set(tag, rescale == nullptr ? 1.0f : rescale[r]);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) {
      sums[r][v] = hn::Mul(hn::LoadU(tag, row + v * kLanes), factor);
    }
  }
  for (size_t key = begin; key < end;) {
    const size_t start = key / kBlockKeys * kBlockKeys;
    const size_t stop = HWY_MIN(end, start + kBlockKeys);
    const void* block = blocks[key / kBlockKeys];
    if (key % 2 != 0) {
      AddPair<Blocks, kRows, kVecs, false, true>(weights, key - 1, block, (key - start) / 2, dim,
                                                 head_dim, sums);
      ++key;
    }
    for (; key + 2 <= stop; key += 2) {
      const size_t pair = (key - start) / 2;
      if constexpr (kRows < kPrefillRowsPerBlock) {
        const void* ahead = blocks[key / kBlockKeys + kPrefetchBlocks];
        PrefetchPair<Blocks, kVecs>(static_cast<const char*>(ahead), pair, dim, head_dim);
      }
      AddPair<Blocks, kRows, kVecs, true, true>(weights, key, block, pair, dim, head_dim, sums);
    }
    if (key < stop) {
      AddPair<Blocks, kRows, kVecs, true, false>(weights, key, block, (key - start) / 2, dim,
                                                 head_dim, sums);
      ++key;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* row = out + static_cast<size_t>(r) * out_stride + dim;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVecs; ++v) hn::StoreU(sums[r][v], tag, row + v * kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_TILE_KERNEL_INL_H_
