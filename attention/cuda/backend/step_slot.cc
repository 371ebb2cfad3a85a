#include "attention/cuda/backend/step_slot.h"

#include <cuda_runtime_api.h>

#include "attention/cuda/backend/hand_back.h"
#include "attention/cuda/backend/step_kernels.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/step_share.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

StepSlot::StepSlot(Stream stream, Stream beside, std::array<Event, 4> events)
    : stream_(std::move(stream)),
      beside_(std::move(beside)),
      appended_(std::move(events[0])),
      decoded_(std::move(events[1])),
      computed_(std::move(events[2])),
      done_(std::move(events[3])) {}

absl::StatusOr<StepSlot> StepSlot::Create(const StepLimits& limits) {
  // The CTAs of prefill take whole SMs, so they must be placed before those of decode.
  ATTN_ASSIGN_OR_RETURN(Stream stream, Stream::Create(Stream::Priority::kUrgent));
  ATTN_ASSIGN_OR_RETURN(Stream beside, Stream::Create());
  ATTN_ASSIGN_OR_RETURN(Event appended, Event::Create(Event::Timing::kNone));
  ATTN_ASSIGN_OR_RETURN(Event decoded, Event::Create(Event::Timing::kNone));
  ATTN_ASSIGN_OR_RETURN(Event computed, Event::Create(Event::Timing::kNone));
  ATTN_ASSIGN_OR_RETURN(Event done, Event::Create(Event::Timing::kNone));
  StepSlot slot(std::move(stream), std::move(beside),
                {std::move(appended), std::move(decoded), std::move(computed), std::move(done)});
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
    ATTN_RETURN_IF_ERROR(previous->computed_.HoldBack(stream_));
  }
  ATTN_RETURN_IF_ERROR(QueueCopiesAndAppends(context, step_, stream_.get()));
  ATTN_RETURN_IF_ERROR(QueueRows(context));
  ATTN_RETURN_IF_ERROR(computed_.Record(stream_));
  if (step_.output_bytes > 0) {
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemcpyAsync(host_outputs_.data(), outputs_.data(),
                                                          static_cast<size_t>(step_.output_bytes),
                                                          cudaMemcpyDeviceToHost, stream_.get())));
  }
  return done_.Record(stream_);
}

absl::Status StepSlot::QueueRows(const StepContext& context) {
  auto* const next_item = next_item_.as<int32_t>();
  const int num_sms = context.limits.num_sms;
  if (!step_.has_decode() || !step_.has_forward()) {
    ATTN_RETURN_IF_ERROR(QueueDecode(context, step_, workspace_.data(), stream_.get()));
    return QueueForward(context, step_, next_item, num_sms, stream_.get());
  }
  ATTN_RETURN_IF_ERROR(appended_.Record(stream_));
  ATTN_RETURN_IF_ERROR(QueueForward(context, step_, next_item,
                                    ForwardCtasBesideDecode(step_.work, num_sms), stream_.get()));
  ATTN_RETURN_IF_ERROR(appended_.HoldBack(beside_));
  ATTN_RETURN_IF_ERROR(QueueDecode(context, step_, workspace_.data(), beside_.get()));
  ATTN_RETURN_IF_ERROR(decoded_.Record(beside_));
  return decoded_.HoldBack(stream_);
}

absl::Status StepSlot::Finish(BulkCopier* copier) {
  ATTN_RETURN_IF_ERROR(done_.Wait());
  HandBack(step_.results, host_outputs_.data(), copier);
  return absl::OkStatus();
}

}  // namespace attn::cuda
