#include "attention/cuda/driver.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "attention/cuda/cuda_status.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

absl::StatusOr<void*> FindDriverFunction(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found)));
  if (found != cudaDriverEntryPointSuccess) {
    return MakeError(Reason::kUnsupported, "device",
                     absl::StrCat("the driver has no ", name, ", want that of CUDA ",
                                  version / 1000, ".", version % 1000 / 10, " or later"));
  }
  return function;
}

absl::Status StatusOfDriver(CUresult result, absl::string_view call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return MakeError(result == CUDA_ERROR_OUT_OF_MEMORY ? Reason::kNoPages : Reason::kInternal,
                   "device", absl::StrCat(call, " gave error ", static_cast<int>(result)));
}

}  // namespace attn::cuda
