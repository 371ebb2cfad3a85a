#include "tests/attnctl/stats_maker.h"

namespace attn::test {

StatsMaker& StatsMaker::Add(const std::string& name, v1::MetricType type, double value) {
  v1::MetricFamily* const family = response.add_families();
  family->set_name(name);
  family->set_type(type);
  family->add_samples()->set_value(value);
  return *this;
}

StatsMaker& StatsMaker::Labelled(std::initializer_list<std::string> names,
                                 std::initializer_list<std::string> values, double value) {
  v1::MetricFamily* const family = response.mutable_families(response.families_size() - 1);
  if (family->label_names().empty()) {
    family->clear_samples();
    for (const std::string& name : names) family->add_label_names(name);
  }
  v1::MetricSample* const sample = family->add_samples();
  sample->set_value(value);
  for (const std::string& label : values) sample->add_label_values(label);
  return *this;
}

StatsMaker& StatsMaker::Times(const std::string& name, std::vector<uint64_t> counts, double sum) {
  Add(name, v1::METRIC_TYPE_HISTOGRAM, 0);
  v1::Distribution* const distribution = response.mutable_families(response.families_size() - 1)
                                             ->mutable_samples(0)
                                             ->mutable_distribution();
  for (const double bound : {0.001, 0.01, 0.1}) distribution->add_upper_bounds(bound);
  uint64_t cumulative = 0;
  for (const uint64_t count : counts) distribution->add_cumulative_counts(cumulative += count);
  distribution->set_sum(sum);
  return *this;
}

}  // namespace attn::test
