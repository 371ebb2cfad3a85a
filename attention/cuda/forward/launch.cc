#include "attention/cuda/forward/launch.h"

#include <algorithm>

#include "attention/cuda/cuda_status.h"
#include "attention/cuda/tensor_map.h"
#include "attention/cuda/tile/swizzle.h"
#include "attn/base/check.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

constexpr int kTileQ = 128;
constexpr int kTileKv = 128;

KvLoad LoadOf(int page_size) {
  return BoxRows(page_size, kTileKv) >= kRowGroup ? KvLoad::kBoxes : KvLoad::kGather;
}

}  // namespace

const ForwardInstance& SelectForward(int page_size) {
  for (const ForwardInstance* instance : ForwardInstances()) {
    if (instance->config.load == LoadOf(page_size)) return *instance;
  }
  ATTN_CHECK(false, "no forward kernel for page size ", page_size);
  __builtin_unreachable();
}

absl::StatusOr<ForwardArgs> MakeForwardArgs(const ForwardLaunch& launch) {
  ForwardArgs args = {};
  const int32_t group_size = launch.num_q_heads / launch.pool.num_kv_heads;
  ATTN_CHECK(group_size >= 1 && group_size <= kMaxGroupSize, "group size ", group_size);
  ATTN_CHECK(launch.num_q_heads <= 8192, "query heads ", launch.num_q_heads);
  args.pool = WithLog2(launch.pool);
  args.score = launch.score;
  args.rows = MakeRowMap(group_size);
  args.num_q_heads = launch.num_q_heads;
  args.num_items = launch.num_items;
  args.entries = launch.entries;
  args.items = launch.items;
  args.next_item = launch.next_item;
  args.cta_cycles = launch.cta_cycles;
  ATTN_ASSIGN_OR_RETURN(args.query_map, MakeQueryMap(launch.q, launch.total_q, launch.num_q_heads,
                                                     group_size, args.rows.QueriesIn(kTileQ)));
  if (LoadOf(launch.pool.page_size) == KvLoad::kBoxes) {
    args.box_rows = BoxRows(launch.pool.page_size, kTileKv);
    ATTN_ASSIGN_OR_RETURN(args.kv_map, MakeKvMap(launch.pool, args.box_rows));
  }
  return args;
}

absl::Status LaunchForward(const ForwardInstance& instance, const ForwardArgs& args, int num_ctas,
                           cudaStream_t stream) {
  if (args.num_items == 0) return absl::OkStatus();
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes)));
  void* parameters[] = {const_cast<ForwardArgs*>(&args)};
  const dim3 grid(static_cast<unsigned>(std::min(args.num_items, num_ctas)));
  return ATTN_CUDA_STATUS(cudaLaunchKernel(instance.kernel, grid, dim3(kForwardThreads), parameters,
                                           static_cast<size_t>(instance.shared_bytes), stream));
}

}  // namespace attn::cuda
