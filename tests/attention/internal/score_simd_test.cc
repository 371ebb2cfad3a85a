// The vector twins of exp2, of the capped score and of the conversions against the scalar ones, on
// every instruction set this machine has.
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/attention/internal/score_simd_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target:
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attention/cpu/flush_denormals.h"
#include "attention/cpu/score_simd-inl.h"
#include "gtest/gtest.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

float Exp2Of(float x) { return hn::GetLane(Exp2(hn::Set(FloatTag(), x))); }

float CappedOf(const score::ScoreOp* op, float x) {
  return hn::GetLane(CappedScore(*op, hn::Set(FloatTag(), x)));
}

void RoundTrip(DType dtype, const float* from, int64_t count, void* encoded, float* to) {
  StoreRow(dtype, from, count, encoded);
  LoadRow(dtype, encoded, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

HWY_EXPORT(Exp2Of);
HWY_EXPORT(CappedOf);
HWY_EXPORT(RoundTrip);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  for (const int64_t target : {HWY_AVX2, HWY_AVX3, HWY_STATIC_TARGET}) {
    if ((hwy::SupportedTargets() & HWY_TARGETS & target) != 0) targets.push_back(target);
  }
  return targets;
}

class ScoreSimdTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(ScoreSimdTest, Exp2IsExactAtItsEnds) {
  const FlushDenormals flush;
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Exp2Of)(0.0f), 1.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Exp2Of)(-kInfinity), 0.0f);
  for (const float x : {-127.0f, -150.0f, -200.0f, -1e10f, -1e30f, -3e38f}) {
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Exp2Of)(x), 0.0f) << x;
  }
  EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(Exp2Of)(kNan)));
}

TEST_P(ScoreSimdTest, Exp2IsWithinTwoRoundings) {
  const FlushDenormals flush;
  for (float x = -125.9f; x < 30.0f; x += 0.0137f) {
    const double want = std::exp2(double{x});
    ASSERT_NEAR(HWY_DYNAMIC_DISPATCH(Exp2Of)(x) / want, 1, 2.5e-7) << x;
  }
}

TEST_P(ScoreSimdTest, CappedScoreIsItsScalarTwin) {
  const FlushDenormals flush;
  for (const float cap : {0.5f, 1.0f, 30.0f}) {
    const score::ScoreOp op = {.cap = cap, .input_scale = 0.125f / cap};
    for (float x = -400.0f; x < 400.0f; x += 0.0731f) {
      ASSERT_NEAR(HWY_DYNAMIC_DISPATCH(CappedOf)(&op, x), op.Value(x),
                  5e-7f * std::fabs(op.Value(x)))
          << x;
    }
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CappedOf)(&op, 0.0f), 0.0f);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CappedOf)(&op, 1e38f), cap);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CappedOf)(&op, -kInfinity), -cap);
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(CappedOf)(&op, kNan)));
  }
}

TEST_P(ScoreSimdTest, DerivativeOfTheScoreIsItsSlope) {
  const score::ScoreOp op = {.cap = 3.0f, .input_scale = 1.0f / 3.0f};
  for (float x = -9.0f; x < 9.0f; x += 0.25f) {
    const double slope =
        (3 * std::tanh((double{x} + 1e-6) / 3) - 3 * std::tanh((double{x} - 1e-6) / 3)) / 2e-6;
    EXPECT_NEAR(op.Derivative(op.Value(x)), slope, 1e-5) << x;
  }
  EXPECT_EQ((score::ScoreOp{}.Derivative(7.0f)), 1.0f);
}

// Every 16-bit pattern, its neighbours and the ties between, with denormals flushed.
TEST_P(ScoreSimdTest, ConversionsAreTheScalarOnes) {
  const FlushDenormals flush;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> values;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const uint16_t half = static_cast<uint16_t>(bits);
      const float value = LoadAsFloat(dtype, &half, 0);
      const uint32_t word = std::bit_cast<uint32_t>(value);
      const uint32_t tie = dtype == DType::kFloat16 ? 0x1000u : 0x8000u;
      values.insert(values.end(),
                    {value, std::bit_cast<float>(word + tie), std::bit_cast<float>(word + tie + 1),
                     std::bit_cast<float>(word + tie - 1)});
    }
    std::vector<uint16_t> encoded(values.size());
    std::vector<float> decoded(values.size());
    HWY_DYNAMIC_DISPATCH(RoundTrip)
    (dtype, values.data(), static_cast<int64_t>(values.size()), encoded.data(), decoded.data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(decoded[i])) << i;
        continue;
      }
      uint16_t want;
      StoreFromFloat(dtype, &want, 0, values[i]);
      ASSERT_EQ(encoded[i], want) << NameOf(dtype) << " of " << values[i];
      const float wide = LoadAsFloat(dtype, &want, 0);
      ASSERT_EQ(std::memcmp(&decoded[i], &wide, sizeof(wide)), 0) << values[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ScoreSimdTest, testing::ValuesIn(Targets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

}  // namespace
}  // namespace attn::cpu
#endif  // HWY_ONCE
