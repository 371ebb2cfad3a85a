// The rule of each backend about specs, which needs no device.
#pragma once

#include "absl/status/status.h"
#include "attention/cuda/backend/supported_spec.h"
#include "attn/attention/backend.h"
#include "tests/support/expect_reference.h"

namespace attn::test {

using SpecRule = absl::Status (*)(const AttentionSpec& spec);

struct BackendRule {
  const char* name;
  SpecRule supports;
};

inline constexpr BackendRule kCpuRule = {
    "CPU", [](const AttentionSpec& spec) { return CpuBackendOf(1).Supports(spec); }};
inline constexpr BackendRule kCudaRule = {"CUDA", cuda::CheckSupported};

}  // namespace attn::test
