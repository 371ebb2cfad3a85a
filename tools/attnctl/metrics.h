// Questions about the answer of Admin.GetStats, and about two of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/v1/admin.pb.h"

namespace attn::ctl {

// 0 where there is no such metric: an older server has fewer.
class Metrics {
 public:
  // `response` outlives it.
  explicit Metrics(const v1::GetStatsResponse& response) : response_(response) {}

  const v1::GetStatsResponse& response() const { return response_; }

  // Of a counter or gauge: the sum over all its samples; with labels only over those that have
  // these values at these places (an empty one fits any).
  double Value(const std::string& name, const std::vector<std::string>& labels = {}) const;
  // The first sample's value of the label; empty if there is none.
  std::string Label(const std::string& name, const std::string& label) const;
  // Of a histogram; empty if there is none.
  v1::Distribution DistributionOf(const std::string& name) const;
  const v1::MetricFamily* Find(const std::string& name) const;

 private:
  const v1::GetStatsResponse& response_;
};

double Count(const v1::Distribution& distribution);
// Of no values: 0.
double Mean(const v1::Distribution& distribution);
// The value below which a share of `quantile`, above 0 and at most 1, of the values lies, taken as
// spread evenly within their range. Above the highest bound: that bound. Of no values: none.
std::optional<double> Quantile(const v1::Distribution& distribution, double quantile);

// The bound of the range in which that value lies, for values that are counted in whole numbers.
std::optional<double> QuantileBound(const v1::Distribution& distribution, double quantile);

// What happened between two answers of one server: counters and histograms as differences, gauges
// as they are now. None if a counter has fallen: it is another process.
std::optional<v1::GetStatsResponse> Difference(const v1::GetStatsResponse& before,
                                               const v1::GetStatsResponse& now);

}  // namespace attn::ctl
