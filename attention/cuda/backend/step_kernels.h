// The kernels of a step, each added to a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "attention/cuda/backend/step_builder.h"

namespace attn::cuda {

// Nothing happens where a step has nothing of the kind. The image must be on the device by then.
absl::Status QueueCopiesAndAppends(const StepContext& context, const Step& step,
                                   cudaStream_t stream);
// `workspace`: StepLimits::workspace_bytes, not shared by steps that may overlap.
absl::Status QueueDecode(const StepContext& context, const Step& step, uint8_t* workspace,
                         cudaStream_t stream);
// At most `num_ctas` CTAs, one to an SM. `next_item` as for ForwardArgs.
absl::Status QueueForward(const StepContext& context, const Step& step, int32_t* next_item,
                          int num_ctas, cudaStream_t stream);

}  // namespace attn::cuda
