#include "attention/cuda/backend/step_slot.h"

#include <cuda_runtime_api.h>

#include "attention/cuda/backend/hand_back.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/launch.h"
#include "attention/cuda/forward/launch.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

absl::StatusOr<StepSlot> StepSlot::Create(const StepLimits& limits) {
  ATTN_ASSIGN_OR_RETURN(Stream stream, Stream::Create());
  ATTN_ASSIGN_OR_RETURN(Event computed, Event::Create(Event::Timing::kNone));
  ATTN_ASSIGN_OR_RETURN(Event done, Event::Create(Event::Timing::kNone));
  StepSlot slot(std::move(stream), std::move(computed), std::move(done));
  const auto upload = static_cast<size_t>(limits.upload_bytes);
  const auto output = static_cast<size_t>(limits.output_bytes);
  ATTN_ASSIGN_OR_RETURN(slot.host_image_, PinnedBuffer::Create(upload));
  ATTN_ASSIGN_OR_RETURN(slot.host_outputs_, PinnedBuffer::Create(output));
  ATTN_ASSIGN_OR_RETURN(slot.image_, DeviceBuffer::Create(upload));
  ATTN_ASSIGN_OR_RETURN(slot.outputs_, DeviceBuffer::Create(output));
  ATTN_ASSIGN_OR_RETURN(slot.workspace_,
                        DeviceBuffer::Create(static_cast<size_t>(limits.workspace_bytes)));
  ATTN_ASSIGN_OR_RETURN(slot.next_item_, DeviceBuffer::Create(sizeof(int32_t)));
  ATTN_RETURN_IF_ERROR(
      ATTN_CUDA_STATUS(cudaMemset(slot.next_item_.data(), 0, slot.next_item_.bytes())));
  return slot;
}

absl::Status StepSlot::Start(const StepContext& context, const Batch& batch,
                             const StepPieces& pieces, const StepSlot* previous) {
  BuildStep(context, batch, pieces, {host_image_.data(), image_.data(), outputs_.data()}, &step_);
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemcpyAsync(image_.data(), host_image_.data(),
                                                        static_cast<size_t>(step_.upload_bytes),
                                                        cudaMemcpyHostToDevice, stream_.get())));
  if (previous != nullptr) {
    ATTN_RETURN_IF_ERROR(
        ATTN_CUDA_STATUS(cudaStreamWaitEvent(stream_.get(), previous->computed_.get(), 0)));
  }
  ATTN_RETURN_IF_ERROR(QueueKernels(context));
  ATTN_RETURN_IF_ERROR(computed_.Record(stream_));
  if (step_.output_bytes > 0) {
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemcpyAsync(host_outputs_.data(), outputs_.data(),
                                                          static_cast<size_t>(step_.output_bytes),
                                                          cudaMemcpyDeviceToHost, stream_.get())));
  }
  return done_.Record(stream_);
}

absl::Status StepSlot::Finish() {
  ATTN_RETURN_IF_ERROR(done_.Wait());
  HandBack(step_.results, host_outputs_.data());
  return absl::OkStatus();
}

absl::Status StepSlot::QueueKernels(const StepContext& context) {
  ATTN_RETURN_IF_ERROR(QueueAppends(*context.pool));
  ATTN_RETURN_IF_ERROR(QueueDecode(context));
  return QueueForward(context);
}

// What a copy reads may have been written by one before it.
absl::Status StepSlot::QueueAppends(const KvPool& pool) {
  const PageCopyRecord* copies = step_.copies;
  for (const int run : step_.copy_runs) {
    ATTN_RETURN_IF_ERROR(LaunchCopyPages(pool, copies, run, stream_.get()));
    copies += run;
  }
  return LaunchAppendKv(pool, step_.append_records, step_.append_items, step_.num_append_items,
                        stream_.get());
}

absl::Status StepSlot::QueueDecode(const StepContext& context) {
  const DecodePlan& plan = step_.decode_plan;
  if (plan.items.empty()) return absl::OkStatus();
  DecodeLaunch launch;
  launch.pool = *context.pool;
  launch.score = *context.score;
  launch.q = step_.q;
  launch.num_q_heads = static_cast<int32_t>(context.spec->num_q_heads);
  launch.rows_per_block = plan.rows_per_block;
  launch.entries = step_.decode_entries;
  launch.items = step_.decode_items;
  launch.num_items = static_cast<int32_t>(plan.items.size());
  launch.combines = step_.combines;
  launch.num_combines = static_cast<int32_t>(plan.combines.size());
  launch.workspace = workspace_.data();
  launch.num_partials = plan.num_partials;
  ATTN_ASSIGN_OR_RETURN(const DecodeArgs args, MakeDecodeArgs(launch));
  return LaunchDecode(SelectDecode(context.pool->page_size), args, launch.num_items,
                      launch.num_combines, stream_.get());
}

absl::Status StepSlot::QueueForward(const StepContext& context) {
  if (step_.num_forward_items == 0) return absl::OkStatus();
  ForwardLaunch launch;
  launch.pool = *context.pool;
  launch.score = *context.score;
  launch.q = step_.q;
  launch.total_q = step_.total_q;
  launch.num_q_heads = static_cast<int32_t>(context.spec->num_q_heads);
  launch.entries = step_.forward_entries;
  launch.items = step_.forward_items;
  launch.num_items = step_.num_forward_items;
  launch.next_item = next_item_.as<int32_t>();
  ATTN_ASSIGN_OR_RETURN(const ForwardArgs args, MakeForwardArgs(launch));
  return LaunchForward(SelectForward(context.pool->page_size), args, context.limits.num_sms,
                       stream_.get());
}

}  // namespace attn::cuda
