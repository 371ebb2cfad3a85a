#include "attention/cuda/decode/launch.h"

#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/combine.cuh"
#include "attention/cuda/decode/shared_layout.h"
#include "attention/cuda/tensor_map.h"
#include "attn/base/check.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

KvLoad LoadOf(int page_size) {
  return BoxRows(page_size, kDecodeBlock) == kDecodeBlock ? KvLoad::kBoxes : KvLoad::kGather;
}

// At four rows three CTAs of two stages fit on an SM, at eight rows two CTAs of three: 192 KiB in
// flight either way.
int StagesFor(int rows_per_block) { return rows_per_block <= 4 ? 2 : 3; }

}  // namespace

const DecodeInstance& SelectDecode(int page_size) {
  for (const DecodeInstance* instance : DecodeInstances()) {
    if (instance->config.load == LoadOf(page_size)) return *instance;
  }
  ATTN_CHECK(false, "no decode kernel for page size ", page_size);
  __builtin_unreachable();
}

int64_t DecodeWorkspaceBytes(int32_t num_partials, int32_t num_kv_heads, int32_t rows_per_block) {
  const int64_t rows = int64_t{num_partials} * num_kv_heads * rows_per_block;
  return rows * (kKvHeadDim * sizeof(float) + sizeof(float2));
}

absl::StatusOr<DecodeArgs> MakeDecodeArgs(const DecodeLaunch& launch) {
  DecodeArgs args = {};
  args.pool = WithLog2(launch.pool);
  args.score = launch.score;
  args.rows = MakeRowMap(launch.num_q_heads / launch.pool.num_kv_heads);
  args.num_q_heads = launch.num_q_heads;
  args.rows_per_block = launch.rows_per_block;
  args.stages = StagesFor(launch.rows_per_block);
  args.q = static_cast<const uint16_t*>(launch.q);
  args.entries = launch.entries;
  args.items = launch.items;
  args.combines = launch.combines;
  const int64_t rows =
      int64_t{launch.num_partials} * launch.pool.num_kv_heads * launch.rows_per_block;
  args.partial_out = reinterpret_cast<float*>(launch.workspace);
  args.partial_state = reinterpret_cast<float2*>(args.partial_out + rows * kKvHeadDim);
  if (LoadOf(launch.pool.page_size) == KvLoad::kBoxes) {
    ATTN_ASSIGN_OR_RETURN(args.kv_map, MakeKvMap(launch.pool, kDecodeBlock));
  }
  return args;
}

absl::Status LaunchDecode(const DecodeInstance& instance, const DecodeArgs& args, int num_items,
                          int num_combines, cudaStream_t stream) {
  if (num_items == 0) return absl::OkStatus();
  const int shared_bytes = DecodeSharedLayout{args.stages, args.rows_per_block}.Bytes();
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes)));
  void* parameters[] = {const_cast<DecodeArgs*>(&args)};
  const auto grid = dim3(static_cast<unsigned>(num_items * args.pool.num_kv_heads));
  ATTN_RETURN_IF_ERROR(
      ATTN_CUDA_STATUS(cudaLaunchKernel(instance.kernel, grid, dim3(kDecodeThreads), parameters,
                                        static_cast<size_t>(shared_bytes), stream)));
  if (num_combines == 0) return absl::OkStatus();
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_combines * args.pool.num_kv_heads));
  config.blockDim = dim3(32 * kCombineWarps);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return ATTN_CUDA_STATUS(cudaLaunchKernelEx(&config, MergeExtents, args));
}

}  // namespace attn::cuda
