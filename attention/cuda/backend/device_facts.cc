#include "attention/cuda/backend/device_facts.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "attention/cuda/cuda_status.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

// The kernels are compiled for sm_90a, which runs on nothing else.
constexpr int kMajor = 9;
constexpr int kMinor = 0;

absl::Status CheckExists(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) count = 0;
  if (device >= 0 && device < count) return absl::OkStatus();
  return MakeError(
      Reason::kUnsupported, "device",
      absl::StrCat("got ", device, ", and CUDA finds ", count, " devices here",
                   error == cudaSuccess ? "" : absl::StrCat(" (", cudaGetErrorString(error), ")")));
}

}  // namespace

absl::StatusOr<DeviceFacts> FactsOf(int device) {
  ATTN_RETURN_IF_ERROR(CheckExists(device));
  cudaDeviceProp properties;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaGetDeviceProperties(&properties, device)));
  if (properties.major != kMajor || properties.minor != kMinor) {
    return MakeError(Reason::kUnsupported, "device",
                     absl::StrCat("got ", device, ", ", properties.name, " of compute capability ",
                                  properties.major, ".", properties.minor, ", want ", kMajor, ".",
                                  kMinor, " (Hopper)"));
  }
  return DeviceFacts{properties.name, properties.multiProcessorCount};
}

}  // namespace attn::cuda
