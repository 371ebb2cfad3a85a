// CUDA errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attn::cuda {

// OK, or DEVICE_LOST for errors after which the context is unusable, NO_PAGES for exhausted memory,
// INTERNAL for others. `call` is the text of the call.
absl::Status StatusOf(cudaError_t error, absl::string_view call);

}  // namespace attn::cuda

#define ATTN_CUDA_STATUS(call) ::attn::cuda::StatusOf((call), #call)
