#include "tools/attnctl/metrics.h"

#include <gtest/gtest.h>

#include "tests/attnctl/stats_maker.h"

namespace attn::ctl {
namespace {

using test::StatsMaker;

TEST(MetricsTest, ValuesAreSumsOfTheSamplesThatFit) {
  StatsMaker maker;
  maker.Counter("refused", 0)
      .Labelled({"at", "reason"}, {"border", "INVALID"}, 3)
      .Labelled({"at", "reason"}, {"engine", "INVALID"}, 4)
      .Labelled({"at", "reason"}, {"engine", "QUOTA"}, 5)
      .Gauge("plain", 7);
  const Metrics metrics(maker.response);
  EXPECT_EQ(metrics.Value("refused"), 12);
  EXPECT_EQ(metrics.Value("refused", {"engine"}), 9);
  EXPECT_EQ(metrics.Value("refused", {"", "INVALID"}), 7);
  EXPECT_EQ(metrics.Value("refused", {"nowhere"}), 0);
  EXPECT_EQ(metrics.Value("plain"), 7);
  EXPECT_EQ(metrics.Value("plain", {"label"}), 0);
  EXPECT_EQ(metrics.Value("unknown"), 0);
  EXPECT_EQ(metrics.Label("refused", "reason"), "INVALID");
  EXPECT_EQ(metrics.Label("plain", "reason"), "");
}

TEST(MetricsTest, QuantilesLieEvenlyWithinTheirRange) {
  StatsMaker maker;
  maker.Times("t", {50, 40, 10, 0}, 1.5);
  const v1::Distribution t = Metrics(maker.response).DistributionOf("t");
  EXPECT_EQ(Count(t), 100);
  EXPECT_DOUBLE_EQ(Mean(t), 0.015);
  EXPECT_DOUBLE_EQ(*Quantile(t, 0.25), 0.0005);
  EXPECT_DOUBLE_EQ(*Quantile(t, 0.5), 0.001);
  EXPECT_DOUBLE_EQ(*Quantile(t, 0.7), 0.0055);
  EXPECT_DOUBLE_EQ(*Quantile(t, 1), 0.1);
  EXPECT_DOUBLE_EQ(*QuantileBound(t, 0.7), 0.01);
}

TEST(MetricsTest, AboveTheHighestBoundIsThatBoundAndOfNothingIsNone) {
  StatsMaker maker;
  maker.Times("high", {0, 0, 0, 5}, 50).Times("none", {0, 0, 0, 0}, 0);
  const Metrics metrics(maker.response);
  EXPECT_DOUBLE_EQ(*Quantile(metrics.DistributionOf("high"), 0.5), 0.1);
  EXPECT_FALSE(Quantile(metrics.DistributionOf("none"), 0.5).has_value());
  EXPECT_FALSE(Quantile(metrics.DistributionOf("unknown"), 0.5).has_value());
  EXPECT_EQ(Mean(metrics.DistributionOf("none")), 0);
}

TEST(MetricsTest, DifferencesAreOfCountersAndHistogramsOnly) {
  StatsMaker before, now;
  before.Counter("c", 5).Gauge("g", 9).Times("t", {1, 1, 0, 0}, 0.5);
  now.Counter("c", 8).Gauge("g", 2).Times("t", {4, 1, 0, 2}, 2.5);
  const auto between = Difference(before.response, now.response);
  ASSERT_TRUE(between.has_value());
  const Metrics metrics(*between);
  EXPECT_EQ(metrics.Value("c"), 3);
  EXPECT_EQ(metrics.Value("g"), 2);
  EXPECT_EQ(Count(metrics.DistributionOf("t")), 5);
  EXPECT_EQ(metrics.DistributionOf("t").cumulative_counts(0), 3u);
  EXPECT_DOUBLE_EQ(metrics.DistributionOf("t").sum(), 2);
}

TEST(MetricsTest, AnotherProcessHasNoDifference) {
  StatsMaker before, restarted, fewer_values, other;
  before.Counter("c", 5).Times("t", {1, 1, 0, 0}, 0.5);
  restarted.Counter("c", 4).Times("t", {1, 1, 0, 0}, 0.5);
  fewer_values.Counter("c", 5).Times("t", {0, 2, 0, 0}, 0.5);
  other.Counter("c", 5).Times("u", {1, 1, 0, 0}, 0.5);
  for (const auto* now : {&restarted, &fewer_values, &other}) {
    EXPECT_FALSE(Difference(before.response, now->response).has_value());
  }
  EXPECT_FALSE(Difference(before.response, {}).has_value());
  EXPECT_TRUE(Difference(before.response, before.response).has_value());
}

}  // namespace
}  // namespace attn::ctl
