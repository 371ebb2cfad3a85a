// Merges the partial results of rows whose keys were cut into several extents, in the tree that the
// decode kernel began. Starts while that kernel drains.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/cuda/decode/args.h"

namespace attn::cuda {

__global__ void MergeExtents(const __grid_constant__ DecodeArgs args);

}  // namespace attn::cuda
