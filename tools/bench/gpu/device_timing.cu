#include "tools/bench/gpu/device_timing.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "attention/cuda/cuda_status.h"

namespace attn::bench {
namespace {

constexpr int64_t kFlushBytes = int64_t{512} << 20;

std::string command_line;
std::string commit = "unknown";

__global__ void ReadAll(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t sum = 0;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const uint4 x = data[i];
    sum += x.x ^ x.y ^ x.z ^ x.w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

__device__ uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

__global__ void FillNormal(__nv_bfloat16* target, int64_t count, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count / 2;
       i += int64_t{gridDim.x} * blockDim.x) {
    const uint64_t bits = Mix(seed * 0x9e3779b97f4a7c15ull + i);
    const float u = (static_cast<uint32_t>(bits) + 1.0f) * 2.3283064e-10f;
    const float angle = static_cast<uint32_t>(bits >> 32) * (2.3283064e-10f * 6.2831853f);
    const float radius = sqrtf(-2.0f * __logf(fminf(u, 1.0f)));
    target[2 * i] = __float2bfloat16(radius * __cosf(angle));
    target[2 * i + 1] = __float2bfloat16(radius * __sinf(angle));
  }
}

}  // namespace

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

DeviceTimer::DeviceTimer()
    : stream_(Require(cuda::Stream::Create())),
      begin_(Require(cuda::Event::Create(cuda::Event::Timing::kMeasured))),
      end_(Require(cuda::Event::Create(cuda::Event::Timing::kMeasured))),
      flush_(Require(cuda::DeviceBuffer::Create(kFlushBytes))) {
  FillRandomBf16(flush_.data(), kFlushBytes / 2, 1, stream_.get());
  Require(stream_.Synchronize());
}

void DeviceTimer::Flush() {
  ReadAll<<<4 * NumSms(), 512, 0, stream_.get()>>>(flush_.as<uint4>(), kFlushBytes / 16,
                                                   flush_.as<uint32_t>());
}

double DeviceTimer::ElapsedUs() {
  Require(end_.Wait());
  float ms = 0;
  Require(ATTN_CUDA_STATUS(cudaEventElapsedTime(&ms, begin_.get(), end_.get())));
  return ms * 1e3;
}

double DeviceTimer::ColdUs(const Call& call, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    Flush();
    Require(begin_.Record(stream_));
    call(stream_.get());
    Require(end_.Record(stream_));
    const double us = ElapsedUs();
    if (i >= 2) times.push_back(us);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

double DeviceTimer::SustainedUs(const Call& call, double seconds) {
  const double one = ColdUs(call, 3);
  const int calls = std::max(10, static_cast<int>(seconds * 1e6 / one));
  for (int i = 0; i < calls / 4; ++i) call(stream_.get());
  Require(begin_.Record(stream_));
  for (int i = 0; i < calls; ++i) call(stream_.get());
  Require(end_.Record(stream_));
  return ElapsedUs() / calls;
}

double DeviceTimer::RotatingUs(const std::vector<Call>& calls) {
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  Require(
      ATTN_CUDA_STATUS(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal)));
  for (const Call& call : calls) call(stream_.get());
  Require(ATTN_CUDA_STATUS(cudaStreamEndCapture(stream_.get(), &graph)));
  Require(ATTN_CUDA_STATUS(cudaGraphInstantiate(&replay, graph, 0)));
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    Require(begin_.Record(stream_));
    Require(ATTN_CUDA_STATUS(cudaGraphLaunch(replay, stream_.get())));
    Require(end_.Record(stream_));
    const double us = ElapsedUs();
    if (i >= 2) times.push_back(us / calls.size());
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void FillRandomBf16(void* target, int64_t count, uint64_t seed, cudaStream_t stream) {
  FillNormal<<<8 * NumSms(), 256, 0, stream>>>(static_cast<__nv_bfloat16*>(target), count, seed);
  Require(ATTN_CUDA_STATUS(cudaGetLastError()));
}

int NumSms() {
  int count = 0;
  Require(ATTN_CUDA_STATUS(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0)));
  return count;
}

cuda::DeviceBuffer BytesOnDevice(const void* data, size_t bytes) {
  cuda::DeviceBuffer buffer = Require(cuda::DeviceBuffer::Create(std::max<size_t>(bytes, 16)));
  Require(ATTN_CUDA_STATUS(cudaMemcpy(buffer.data(), data, bytes, cudaMemcpyHostToDevice)));
  return buffer;
}

void StartReport(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--commit=", 0) == 0) {
      commit = argument.substr(9);
    } else {
      command_line += (i == 0 ? "" : " ") + argument;
    }
  }
}

void Report(const char* bench, const std::string& shape, const char* metric, double value,
            const char* unit) {
  cudaDeviceProp properties;
  Require(ATTN_CUDA_STATUS(cudaGetDeviceProperties(&properties, 0)));
  std::printf(
      R"({"bench": "%s", "case": "%s", "metric": "%s", "value": %.6g, "unit": "%s", "device": "%s", "commit": "%s", "command": "%s"})"
      "\n",
      bench, shape.c_str(), metric, value, unit, properties.name, commit.c_str(),
      command_line.c_str());
  std::fflush(stdout);
}

}  // namespace attn::bench
