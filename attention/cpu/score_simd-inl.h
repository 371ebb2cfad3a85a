// The vector twin of score/logit.h and of the exponential in score/online_softmax.h.
#include "attention/cpu/convert-inl.h"
#include "attention/score/logit.h"

#if defined(ATTN_CPU_SCORE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_SCORE_SIMD_INL_H_
#undef ATTN_CPU_SCORE_SIMD_INL_H_
#else
#define ATTN_CPU_SCORE_SIMD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// 2^x for x <= 127 and -inf, with flushing: exactly 1 at 0, exactly 0 below -126 and at -inf, NaN
// at NaN. Relative error 9.2e-8 before rounding: a polynomial of degree 5 on [-1/2, 1/2], made by
// minimising the largest relative error with the constant term held at 1.
HWY_INLINE FloatVec Exp2(FloatVec x) {
  const FloatTag tag;
#if HWY_TARGET == HWY_AVX3
  const FloatVec rest{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
#else
  const FloatVec whole = hn::Round(x);
  const FloatVec rest = hn::Sub(x, whole);
#endif
  FloatVec p = hn::Set(tag, 0.00132646947f);
  p = hn::MulAdd(p, rest, hn::Set(tag, 0.00967151485f));
  p = hn::MulAdd(p, rest, hn::Set(tag, 0.0555073395f));
  p = hn::MulAdd(p, rest, hn::Set(tag, 0.240222424f));
  p = hn::MulAdd(p, rest, hn::Set(tag, 0.693147004f));
  p = hn::MulAdd(p, rest, hn::Set(tag, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return FloatVec{_mm512_scalef_ps(p.raw, hn::Sub(x, rest).raw)};
#else
  // Multiplying, not adding to the exponent bits, keeps NaN a NaN.
  const hn::RebindToSigned<FloatTag> integer;
  const auto exponent = hn::Add(hn::ConvertTo(integer, whole), hn::Set(integer, 127));
  const FloatVec power = hn::BitCast(tag, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(tag, -126.0f)), hn::Mul(p, power));
#endif
}

// tanh with a relative error of some 2e-7; +-1 far out, NaN at NaN. Odd polynomial below 0.625 (by
// minimising the largest relative error), 1 - 2 / (e^2x + 1) above.
HWY_INLINE FloatVec Tanh(FloatVec x) {
  const FloatTag tag;
  const FloatVec size = hn::Abs(x);
  const FloatVec square = hn::Mul(x, x);
  FloatVec p = hn::Set(tag, -0.00570498686f);
  p = hn::MulAdd(p, square, hn::Set(tag, 0.020639088f));
  p = hn::MulAdd(p, square, hn::Set(tag, -0.0537397154f));
  p = hn::MulAdd(p, square, hn::Set(tag, 0.133314416f));
  p = hn::MulAdd(p, square, hn::Set(tag, -0.333332807f));
  const FloatVec near = hn::MulAdd(hn::Mul(p, square), x, x);
  const FloatVec limited = hn::Min(size, hn::Set(tag, 10.0f));
  const FloatVec power = Exp2(hn::Mul(limited, hn::Set(tag, 2.88539008177792681f)));
  const FloatVec one = hn::Set(tag, 1.0f);
  const FloatVec quotient = hn::Div(hn::Set(tag, 2.0f), hn::Add(power, one));
  const FloatVec far = hn::CopySign(hn::Sub(one, quotient), x);
  const FloatVec value = hn::IfThenElse(hn::Lt(size, hn::Set(tag, 0.625f)), near, far);
  return hn::IfThenElse(hn::IsNaN(x), x, value);
}

// score::ScoreOp::Value of each lane. REQUIRES: !op.IsLinear().
HWY_INLINE FloatVec CappedScore(const score::ScoreOp& op, FloatVec dot) {
  const FloatTag tag;
  return hn::Mul(hn::Set(tag, op.cap), Tanh(hn::Mul(dot, hn::Set(tag, op.input_scale))));
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_SCORE_SIMD_INL_H_
