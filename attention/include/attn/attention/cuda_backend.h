// The CUDA backend: bf16 attention with head dimension 128 on a Hopper GPU.
//
// In a build without CUDA these functions exist and say UNSUPPORTED.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/attention/backend.h"

namespace attn {

struct CudaBackendOptions {
  int device = 0;  // as CUDA numbers them
  // What one step of a launch may send to the device, and what it may bring back: so much
  // page-locked memory and so much device memory for either, three times. A larger launch is cut
  // into several steps, whose copies overlap with the computing of others. 1 MiB to 1 GiB.
  int64_t staging_bytes = int64_t{16} << 20;
  // Threads that copy between the callers' memory and the page-locked, the calling one counted.
  // 0: up to 4, but one less than there are cores.
  int copy_threads = 0;
};

// OK if this build and this machine can compute on the device; else why not.
absl::Status CheckCudaDevice(int device);

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace attn
