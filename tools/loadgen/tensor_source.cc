#include "tools/loadgen/tensor_source.h"

#include <cstring>

namespace attn::loadgen {
namespace {

// Mixes a counter into 64 random-looking bits (two multiply-xorshift rounds).
inline uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

uint64_t KeyOf(uint64_t seed, const RowId& row, uint64_t kind) {
  uint64_t key = Mix(seed + 0x9e3779b97f4a7c15u * kind);
  key = Mix(key ^ row.sequence);
  return Mix(key ^ (uint64_t{row.layer} << 32 | row.position));
}

// Random bits that stay, and the exponent bits that are fixed, for all elements in 64 bits.
struct Lanes {
  uint64_t random;
  uint64_t fixed;
};

constexpr Lanes LanesOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:  // sign, 2 low exponent bits of 124..127, mantissa
      return {0x81ff81ff81ff81ffu, 0x3e003e003e003e00u};
    case DType::kFloat16:  // 2 low exponent bits of 12..15
      return {0x8fff8fff8fff8fffu, 0x3000300030003000u};
    case DType::kFloat32:
      break;
  }
  return {0x81ffffff81ffffffu, 0x3e0000003e000000u};
}

}  // namespace

void TensorSource::Fill(const RowId& row, TensorKind kind, size_t elements, void* target) const {
  const uint64_t key = KeyOf(seed_, row, static_cast<uint64_t>(kind));
  const Lanes lanes = LanesOf(dtype_);
  auto* bytes = static_cast<unsigned char*>(target);
  const size_t size = elements * SizeOf(dtype_);
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    const uint64_t word = (Mix(key + at * 0x9e3779b97f4a7c15u) & lanes.random) | lanes.fixed;
    std::memcpy(bytes + at, &word, size - at < sizeof(word) ? size - at : sizeof(word));
  }
}

bool TensorSource::IsSampled(const RowId& row, double share) const {
  constexpr uint64_t kSampling = 0;  // no TensorKind
  return static_cast<double>(KeyOf(seed_, row, kSampling) >> 11) * 0x1p-53 < share;
}

}  // namespace attn::loadgen
