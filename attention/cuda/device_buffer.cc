#include "attention/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

#include "attention/cuda/cuda_status.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

template <>
DeviceBuffer::~Buffer() {
  if (data_ != nullptr) cudaFree(data_);
}

template <>
PinnedBuffer::~Buffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

template <>
absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMalloc(&buffer.data_, bytes)));
  buffer.bytes_ = bytes;
  return buffer;
}

template <>
absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(size_t bytes) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMallocHost(&buffer.data_, bytes)));
  buffer.bytes_ = bytes;
  return buffer;
}

}  // namespace attn::cuda
