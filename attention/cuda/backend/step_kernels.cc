#include "attention/cuda/backend/step_kernels.h"

#include "attention/cuda/decode/launch.h"
#include "attention/cuda/forward/launch.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

// What a copy reads may have been written by one before it.
absl::Status QueueCopiesAndAppends(const StepContext& context, const Step& step,
                                   cudaStream_t stream) {
  const PageCopyRecord* copies = step.copies;
  for (const int run : step.copy_runs) {
    ATTN_RETURN_IF_ERROR(LaunchCopyPages(*context.pool, copies, run, stream));
    copies += run;
  }
  return LaunchAppendKv(*context.pool, step.append_records, step.append_items,
                        step.num_append_items, stream);
}

absl::Status QueueDecode(const StepContext& context, const Step& step, uint8_t* workspace,
                         cudaStream_t stream) {
  if (!step.has_decode()) return absl::OkStatus();
  const DecodePlan& plan = step.decode_plan;
  DecodeLaunch launch;
  launch.pool = *context.pool;
  launch.score = *context.score;
  launch.q = step.q;
  launch.num_q_heads = static_cast<int32_t>(context.spec->num_q_heads);
  launch.rows_per_block = plan.rows_per_block;
  launch.entries = step.decode_entries;
  launch.items = step.decode_items;
  launch.num_items = static_cast<int32_t>(plan.items.size());
  launch.combines = step.combines;
  launch.num_combines = static_cast<int32_t>(plan.combines.size());
  launch.workspace = workspace;
  launch.num_partials = plan.num_partials;
  ATTN_ASSIGN_OR_RETURN(const DecodeArgs args, MakeDecodeArgs(launch));
  return LaunchDecode(SelectDecode(context.pool->page_size), args, launch.num_items,
                      launch.num_combines, stream);
}

absl::Status QueueForward(const StepContext& context, const Step& step, int32_t* next_item,
                          int num_ctas, cudaStream_t stream) {
  if (!step.has_forward()) return absl::OkStatus();
  ForwardLaunch launch;
  launch.pool = *context.pool;
  launch.score = *context.score;
  launch.q = step.q;
  launch.total_q = step.total_q;
  launch.num_q_heads = static_cast<int32_t>(context.spec->num_q_heads);
  launch.entries = step.forward_entries;
  launch.items = step.forward_items;
  launch.num_items = step.num_forward_items;
  launch.next_item = next_item;
  ATTN_ASSIGN_OR_RETURN(const ForwardArgs args, MakeForwardArgs(launch));
  return LaunchForward(SelectForward(context.pool->page_size), args, num_ctas, stream);
}

}  // namespace attn::cuda
