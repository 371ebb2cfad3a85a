// Timing on a device, as docs/benchmarks explains it: cold (one call after reading more than L2,
// median), sustained (calls one behind another for a while) and rotating (a graph of calls whose
// inputs together exceed L2 three times).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda/device_buffer.h"
#include "attention/cuda/stream.h"

namespace attn::bench {

// Queues one call on the stream.
using Call = std::function<void(cudaStream_t)>;

class DeviceTimer {
 public:
  DeviceTimer();

  double ColdUs(const Call& call, int repeats);
  double SustainedUs(const Call& call, double seconds);
  // Mean per call of a graph in which the calls follow one another.
  double RotatingUs(const std::vector<Call>& calls);
  const cuda::Stream& stream() const { return stream_; }

 private:
  void Flush();
  double ElapsedUs();

  cuda::Stream stream_;
  cuda::Event begin_, end_;
  cuda::DeviceBuffer flush_;
};

// Standard normal values, the same for the same seed.
void FillRandomBf16(void* target, int64_t count, uint64_t seed, cudaStream_t stream);

int NumSms();

// Ends the program with the error where there is one: a benchmark has nobody to hand it to.
void Require(const absl::Status& status);
template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return std::move(value).value();
}

cuda::DeviceBuffer BytesOnDevice(const void* data, size_t bytes);

template <typename T>
cuda::DeviceBuffer OnDevice(const std::vector<T>& values) {
  return BytesOnDevice(values.data(), values.size() * sizeof(T));
}

// Remembers the command line and --commit=….
void StartReport(int argc, char** argv);
// One JSON line with the fields of docs/benchmarks; no rival here, a later step joins it.
void Report(const char* bench, const std::string& shape, const char* metric, double value,
            const char* unit);

}  // namespace attn::bench
