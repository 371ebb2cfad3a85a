// The CPU backend: paged varlen flash attention on AVX2 and AVX-512, chosen at run time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "attn/attention/backend.h"

namespace attn {

struct CpuBackendOptions {
  // Threads that compute, the calling one counted. 0: max(1, cores - 1).
  int num_threads = 0;
};

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace attn
