#include "attention/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::cuda {
namespace {

bool EndsTheContext(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status StatusOf(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  Reason reason = EndsTheContext(error) ? Reason::kDeviceLost : Reason::kInternal;
  if (error == cudaErrorMemoryAllocation) reason = Reason::kNoPages;
  return MakeError(
      reason, "device",
      absl::StrCat(call, " gave ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"));
}

}  // namespace attn::cuda
