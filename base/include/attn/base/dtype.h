// Element types, their sizes, and scalar conversions to and from float. Conversions round to
// nearest even; a NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace attn {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// "float32", "float16", "bfloat16".
absl::string_view NameOf(DType dtype);

constexpr float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float Fp16ToFloat(uint16_t bits);
// Overflow gives an infinity; subnormal results are kept.
uint16_t FloatToFp16(float value);

// Element `index` of an array of `dtype`, which may lie at any address.
float LoadAsFloat(DType dtype, const void* data, int64_t index);
void StoreFromFloat(DType dtype, void* data, int64_t index, float value);

// What `value` becomes when it is stored as `dtype` and read back.
float RoundTo(DType dtype, float value);

}  // namespace attn
