#include "tools/loadgen/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attn::loadgen {

void Samples::AddAll(const Samples& other) {
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
}

double Samples::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double Samples::Percentile(double percent) const {
  if (values_.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(values_.size()));
  const size_t index = std::min(values_.size() - 1, static_cast<size_t>(std::max(rank, 1.0)) - 1);
  std::vector<double> values = values_;
  const auto nth = values.begin() + static_cast<ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace attn::loadgen
