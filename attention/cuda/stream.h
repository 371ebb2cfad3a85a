// A queue of work on the device, and marks in it.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attn::cuda {

// Movable owner of a CUDA stream that does not wait for the legacy default stream.
class Stream {
 public:
  // Work of an urgent stream is given SMs before that of others.
  enum class Priority : bool { kNormal, kUrgent };
  static absl::StatusOr<Stream> Create(Priority priority = Priority::kNormal);
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();

  cudaStream_t get() const { return stream_; }
  // Blocks until all work so far is done; errors of that work appear here.
  absl::Status Synchronize() const;

 private:
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream_ = nullptr;
};

// Movable owner of a CUDA event.
class Event {
 public:
  enum class Timing : bool { kNone, kMeasured };
  static absl::StatusOr<Event> Create(Timing timing);
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  cudaEvent_t get() const { return event_; }
  absl::Status Record(const Stream& stream) const;
  // What is added to `stream` from now on waits for the work before the mark.
  absl::Status HoldBack(const Stream& stream) const;
  // Blocks until the work before the mark is done.
  absl::Status Wait() const;

 private:
  explicit Event(cudaEvent_t event) : event_(event) {}
  cudaEvent_t event_ = nullptr;
};

}  // namespace attn::cuda
