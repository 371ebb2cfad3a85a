// The CPU as the tested backend: it computes every spec that tests make.
#include "tests/support/expect_reference.h"
#include "tests/support/tested_backend.h"

namespace attn::test {

const std::vector<Backend*>& TestedBackends() {
  static const auto* const backends =
      new std::vector<Backend*>{&CpuBackendOf(1), &CpuBackendOf(2), &CpuBackendOf(3)};
  return *backends;
}

void Narrow(AttentionSpec&) {}

const std::vector<DType>& TestedDTypes() {
  static const auto* const dtypes =
      new std::vector<DType>{DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  return *dtypes;
}

int TestedRepeats() { return 60; }

}  // namespace attn::test
