// A set of measurements and its percentiles, exact.
#pragma once

#include <cstddef>
#include <vector>

namespace attn::loadgen {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  void AddAll(const Samples& other);
  size_t size() const { return values_.size(); }
  double mean() const;  // 0 without samples
  // The least sample that at least `percent` percent of the samples do not exceed (nearest rank);
  // 0 without samples. REQUIRES: 0 < percent <= 100.
  double Percentile(double percent) const;

 private:
  std::vector<double> values_;
};

}  // namespace attn::loadgen
