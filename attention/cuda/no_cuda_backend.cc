// What a build without CUDA says to those who ask for it.
#include "attn/attention/cuda_backend.h"
#include "attn/base/error.h"

namespace attn {

absl::Status CheckCudaDevice(int) {
  return MakeError(Reason::kUnsupported, "device",
                   "this build has no CUDA backend, want one made with ATTN_BUILD_CUDA=ON");
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  return CheckCudaDevice(options.device);
}

}  // namespace attn
