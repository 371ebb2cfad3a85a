// Rows of elements to and from float, per instruction set. Pointers may have any alignment.
// Rounding is to nearest even, NaN stays NaN, float16 overflow gives an infinity.
#include <cstdint>

#include "attn/base/dtype.h"
#include "hwy/highway.h"

#if defined(ATTN_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_CONVERT_INL_H_
#undef ATTN_CPU_CONVERT_INL_H_
#else
#define ATTN_CPU_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using HalfBitsTag = hn::Rebind<uint16_t, FloatTag>;

HWY_INLINE FloatVec LoadBf16(const uint16_t* from) {
  const auto words = hn::PromoteTo(WordTag(), hn::LoadU(HalfBitsTag(), from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(words));
}

HWY_INLINE FloatVec LoadFp16(const uint16_t* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(FloatTag(), Fp16ToFloat(*from));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  return hn::PromoteTo(FloatTag(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

HWY_INLINE void StoreBf16(FloatVec value, uint16_t* to) {
  const WordTag words;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(words, 0x400000u));
  const auto is_nan = hn::RebindMask(words, hn::IsNaN(value));
  const auto top = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
#if HWY_TARGET == HWY_SCALAR
  *to = static_cast<uint16_t>(hn::GetLane(top));
#else
  hn::StoreU(hn::DemoteTo(HalfBitsTag(), hn::BitCast(hn::RebindToSigned<WordTag>(), top)),
             HalfBitsTag(), to);
#endif
}

HWY_INLINE void StoreFp16(FloatVec value, uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = FloatToFp16(hn::GetLane(value));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
#endif
}

// `count` is a multiple of 8; vectors of 16 leave a half.
HWY_INLINE void LoadRow(DType dtype, const void* from, int64_t count, float* to) {
  const FloatTag tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  switch (dtype) {
    case DType::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kBFloat16: {
      const uint16_t* source = static_cast<const uint16_t*>(from);
      for (; i + lanes <= count; i += lanes) hn::StoreU(LoadBf16(source + i), tag, to + i);
      break;
    }
    case DType::kFloat16: {
      const uint16_t* source = static_cast<const uint16_t*>(from);
      for (; i + lanes <= count; i += lanes) hn::StoreU(LoadFp16(source + i), tag, to + i);
      break;
    }
  }
  for (; i < count; ++i) to[i] = LoadAsFloat(dtype, from, i);
}

HWY_INLINE void StoreRow(DType dtype, const float* from, int64_t count, void* to) {
  const FloatTag tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  switch (dtype) {
    case DType::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kBFloat16: {
      uint16_t* target = static_cast<uint16_t*>(to);
      for (; i + lanes <= count; i += lanes) StoreBf16(hn::LoadU(tag, from + i), target + i);
      break;
    }
    case DType::kFloat16: {
      uint16_t* target = static_cast<uint16_t*>(to);
      for (; i + lanes <= count; i += lanes) StoreFp16(hn::LoadU(tag, from + i), target + i);
      break;
    }
  }
  for (; i < count; ++i) StoreFromFloat(dtype, to, i, from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_CONVERT_INL_H_
