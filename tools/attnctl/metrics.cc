#include "tools/attnctl/metrics.h"

#include <algorithm>

namespace attn::ctl {
namespace {

bool Fits(const v1::MetricSample& sample, const std::vector<std::string>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    const int at = static_cast<int>(i);
    if (!labels[i].empty() &&
        (at >= sample.label_values_size() || sample.label_values(at) != labels[i])) {
      return false;
    }
  }
  return true;
}

bool HaveSameShape(const v1::MetricFamily& a, const v1::MetricFamily& b) {
  if (a.name() != b.name() || a.type() != b.type() || a.samples_size() != b.samples_size()) {
    return false;
  }
  for (int i = 0; i < a.samples_size(); ++i) {
    if (a.samples(i).distribution().cumulative_counts_size() !=
        b.samples(i).distribution().cumulative_counts_size()) {
      return false;
    }
  }
  return true;
}

// Takes `before` off; false if something has fallen.
bool Subtract(const v1::MetricSample& before, v1::MetricSample* now) {
  if (now->value() < before.value()) return false;
  now->set_value(now->value() - before.value());
  if (!now->has_distribution()) return true;
  const v1::Distribution& from = before.distribution();
  v1::Distribution* const to = now->mutable_distribution();
  for (int i = 0; i < to->cumulative_counts_size(); ++i) {
    if (to->cumulative_counts(i) < from.cumulative_counts(i)) return false;
    to->set_cumulative_counts(i, to->cumulative_counts(i) - from.cumulative_counts(i));
  }
  to->set_sum(std::max(0.0, to->sum() - from.sum()));
  return true;
}

// Where a quantile lies: this share of the way from low to high.
struct Range {
  double low = 0;
  double high = 0;
  double share = 0;
};

std::optional<Range> RangeOf(const v1::Distribution& distribution, double quantile) {
  const double wanted = quantile * Count(distribution);
  if (wanted <= 0) return std::nullopt;
  double low = 0;
  double count_below = 0;
  for (int i = 0; i < distribution.upper_bounds_size(); ++i) {
    const double high = distribution.upper_bounds(i);
    const auto count = static_cast<double>(distribution.cumulative_counts(i));
    if (count >= wanted) return Range{low, high, (wanted - count_below) / (count - count_below)};
    low = high;
    count_below = count;
  }
  return Range{low, low, 1};
}

}  // namespace

const v1::MetricFamily* Metrics::Find(const std::string& name) const {
  const auto& families = response_.families();
  const auto found =
      std::find_if(families.begin(), families.end(),
                   [&](const v1::MetricFamily& family) { return family.name() == name; });
  return found == families.end() ? nullptr : &*found;
}

double Metrics::Value(const std::string& name, const std::vector<std::string>& labels) const {
  double sum = 0;
  if (const v1::MetricFamily* const family = Find(name)) {
    for (const v1::MetricSample& sample : family->samples()) {
      if (Fits(sample, labels)) sum += sample.value();
    }
  }
  return sum;
}

std::string Metrics::Label(const std::string& name, const std::string& label) const {
  const v1::MetricFamily* const family = Find(name);
  if (family == nullptr || family->samples().empty()) return "";
  for (int i = 0; i < family->label_names_size(); ++i) {
    if (family->label_names(i) == label && i < family->samples(0).label_values_size()) {
      return family->samples(0).label_values(i);
    }
  }
  return "";
}

v1::Distribution Metrics::DistributionOf(const std::string& name) const {
  const v1::MetricFamily* const family = Find(name);
  if (family == nullptr || family->samples().empty()) return {};
  return family->samples(0).distribution();
}

double Count(const v1::Distribution& distribution) {
  const auto& counts = distribution.cumulative_counts();
  return counts.empty() ? 0 : static_cast<double>(*counts.rbegin());
}

double Mean(const v1::Distribution& distribution) {
  const double count = Count(distribution);
  return count > 0 ? distribution.sum() / count : 0;
}

std::optional<double> Quantile(const v1::Distribution& distribution, double quantile) {
  const std::optional<Range> range = RangeOf(distribution, quantile);
  if (!range.has_value()) return std::nullopt;
  return range->low + range->share * (range->high - range->low);
}

std::optional<double> QuantileBound(const v1::Distribution& distribution, double quantile) {
  const std::optional<Range> range = RangeOf(distribution, quantile);
  if (!range.has_value()) return std::nullopt;
  return range->high;
}

std::optional<v1::GetStatsResponse> Difference(const v1::GetStatsResponse& before,
                                               const v1::GetStatsResponse& now) {
  if (before.families_size() != now.families_size()) return std::nullopt;
  v1::GetStatsResponse difference = now;
  for (int f = 0; f < now.families_size(); ++f) {
    if (!HaveSameShape(before.families(f), now.families(f))) return std::nullopt;
    v1::MetricFamily* const family = difference.mutable_families(f);
    if (family->type() == v1::METRIC_TYPE_GAUGE) continue;
    for (int s = 0; s < family->samples_size(); ++s) {
      if (!Subtract(before.families(f).samples(s), family->mutable_samples(s))) return std::nullopt;
    }
  }
  return difference;
}

}  // namespace attn::ctl
