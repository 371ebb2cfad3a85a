// Answers of Admin.GetStats made by hand.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "attn/v1/admin.pb.h"

namespace attn::test {

class StatsMaker {
 public:
  StatsMaker& Counter(const std::string& name, double value) {
    return Add(name, v1::METRIC_TYPE_COUNTER, value);
  }
  StatsMaker& Gauge(const std::string& name, double value) {
    return Add(name, v1::METRIC_TYPE_GAUGE, value);
  }
  // One more sample of the family that was added last, which has these labels.
  StatsMaker& Labelled(std::initializer_list<std::string> names,
                       std::initializer_list<std::string> values, double value);
  // Values up to 0.001, up to 0.01, up to 0.1, and above.
  StatsMaker& Times(const std::string& name, std::vector<uint64_t> counts, double sum);

  v1::GetStatsResponse response;

 private:
  StatsMaker& Add(const std::string& name, v1::MetricType type, double value);
};

}  // namespace attn::test
