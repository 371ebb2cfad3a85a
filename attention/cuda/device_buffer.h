// Memory on the device, and page-locked memory on the host, each owned by one object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace attn::cuda {

// Movable owner of bytes in the memory named by Kind. Empty after a move.
template <typename Kind>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Content is undefined. At least 256-byte aligned. 0 bytes give an empty buffer.
  static absl::StatusOr<Buffer> Create(size_t bytes);

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceBuffer = Buffer<struct DeviceMemory>;
// The device reads and writes it in the background.
using PinnedBuffer = Buffer<struct PinnedMemory>;

}  // namespace attn::cuda
