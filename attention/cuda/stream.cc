#include "attention/cuda/stream.h"

#include "attention/cuda/cuda_status.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

absl::StatusOr<Stream> Stream::Create(Priority priority) {
  int least = 0;
  int greatest = 0;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  cudaStream_t stream = nullptr;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaStreamCreateWithPriority(
      &stream, cudaStreamNonBlocking, priority == Priority::kUrgent ? greatest : least)));
  return Stream(stream);
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status Stream::Synchronize() const {
  return ATTN_CUDA_STATUS(cudaStreamSynchronize(stream_));
}

absl::StatusOr<Event> Event::Create(Timing timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == Timing::kMeasured ? cudaEventDefault : cudaEventDisableTiming;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaEventCreateWithFlags(&event, flags)));
  return Event(event);
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status Event::Record(const Stream& stream) const {
  return ATTN_CUDA_STATUS(cudaEventRecord(event_, stream.get()));
}

absl::Status Event::HoldBack(const Stream& stream) const {
  return ATTN_CUDA_STATUS(cudaStreamWaitEvent(stream.get(), event_, 0));
}

absl::Status Event::Wait() const { return ATTN_CUDA_STATUS(cudaEventSynchronize(event_)); }

}  // namespace attn::cuda
