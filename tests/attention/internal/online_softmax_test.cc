// The running softmax of one row: merging and finishing against sums in double.
#include "attention/score/online_softmax.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace attn::score {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(OnlineSoftmaxTest, RescaleIsExactlyOneWhereTheMaximumStays) {
  for (const float max : {-1e30f, -5.0f, 0.0f, 3.25f, 1e30f}) {
    EXPECT_EQ(Rescale(max, max, kLog2E), 1.0f);
  }
}

TEST(OnlineSoftmaxTest, ARowThatMetNoKeyWeighsNothingAndIsNeverNan) {
  EXPECT_EQ(Rescale(kNoScore, kNoScore, kLog2E), 0.0f);
  EXPECT_EQ(Rescale(kNoScore, 5.0f, kLog2E), 0.0f);
}

TEST(OnlineSoftmaxTest, MergeGivesTheSumsOfBothParts) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  for (int i = 0; i < 1000; ++i) {
    const float left_max = normal(random), right_max = normal(random);
    const MergeWeights weights = Merge(left_max, right_max, kLog2E);
    const double want = 3 * std::exp(double{left_max}) + 5 * std::exp(double{right_max});
    const double got = Merged(weights, 3, 5) * std::exp(double{weights.max});
    ASSERT_NEAR(got / want, 1, 1e-5) << left_max << " " << right_max;
  }
}

TEST(OnlineSoftmaxTest, FinishCountsEachSinkOnceAndRaw) {
  const std::vector<float> sinks = {0.5f, -3.0f, 2.0f};
  const float natural_scale = 0.25f;
  const Finished end = Finish(4.0f, 2.5f, natural_scale, sinks.data(), 3);
  const double keys = 2.5 * std::exp(1.0);
  const double total = keys + std::exp(0.5) + std::exp(-3.0) + std::exp(2.0);
  EXPECT_NEAR(end.lse, std::log(total), 1e-6);
  EXPECT_NEAR(end.factor, std::exp(1.0) / total, 1e-6);
}

TEST(OnlineSoftmaxTest, ADeadRowIsZeroWithTheLseOfItsSinks) {
  const std::vector<float> sinks = {1.0f, -1.0f};
  EXPECT_EQ(Finish(kNoScore, 0, 1, nullptr, 0).factor, 0.0f);
  EXPECT_EQ(Finish(kNoScore, 0, 1, nullptr, 0).lse, -kInfinity);
  const Finished end = Finish(kNoScore, 0, 1, sinks.data(), 2);
  EXPECT_EQ(end.factor, 0.0f);
  EXPECT_NEAR(end.lse, std::log(std::exp(1.0) + std::exp(-1.0)), 1e-6);
}

TEST(OnlineSoftmaxTest, ASinkFarAboveAllKeysLeavesNothingOfThem) {
  const float sink = 1e4f;
  const Finished end = Finish(0.0f, 1.0f, 1.0f, &sink, 1);
  EXPECT_EQ(end.factor, 0.0f);
  EXPECT_EQ(end.lse, 1e4f);
}

}  // namespace
}  // namespace attn::score
