// Everything one step on the device needs: pinned and device memory of fixed size, streams, and
// marks in them. Copies to the device, kernels, and copies back follow one another, but for decode,
// which runs beside prefill; steps in different slots overlap but for their kernels, which run in
// the order of the steps.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda/backend/step_builder.h"
#include "attention/cuda/device_buffer.h"
#include "attention/cuda/stream.h"

namespace attn::cuda {

class StepSlot {
 public:
  // The device must be current here and in all other calls.
  static absl::StatusOr<StepSlot> Create(const StepLimits& limits);

  // Builds the step and queues it behind the kernels of `previous`, null if they are done. On an
  // error part of it may be under way.
  absl::Status Start(const StepContext& context, const Batch& batch, const StepPieces& pieces,
                     const StepSlot* previous);
  // Waits for the step and hands its results to those who asked.
  absl::Status Finish(BulkCopier* copier);

 private:
  StepSlot(Stream stream, Stream beside, std::array<Event, 4> events);
  absl::Status QueueRows(const StepContext& context);

  Stream stream_;
  Stream beside_;   // decode, where there is prefill too
  Event appended_;  // copies of pages and appends
  Event decoded_;   // in beside_
  Event computed_;  // all kernels
  Event done_;      // results are on the host
  PinnedBuffer host_image_;
  PinnedBuffer host_outputs_;
  DeviceBuffer image_;
  DeviceBuffer outputs_;
  DeviceBuffer workspace_;  // of decode
  DeviceBuffer next_item_;  // of forward: ForwardArgs::next_item
  Step step_;
};

}  // namespace attn::cuda
