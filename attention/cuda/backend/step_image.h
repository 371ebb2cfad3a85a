// The one stretch of memory that a step sends to the device, written front to back on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/base/check.h"

namespace attn::cuda {

inline constexpr int64_t kSectionAlignment = 128;
inline constexpr int64_t kPieceAlignment = 16;

constexpr int64_t AlignedUp(int64_t bytes, int64_t alignment = kPieceAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// An array in the image: where it is written, and where kernels will find it.
template <typename T>
struct InImage {
  T* host = nullptr;
  T* device = nullptr;
};

class ImageWriter {
 public:
  // `host` and `device` are aligned to kSectionAlignment.
  ImageWriter(uint8_t* host, uint8_t* device, int64_t capacity)
      : host_(host), device_(device), capacity_(capacity) {}

  // Room for an array, uninitialised. REQUIRES: it fits.
  template <typename T>
  InImage<T> Section(size_t count) {
    used_ = AlignedUp(used_, kSectionAlignment);
    const int64_t begin = used_;
    used_ += static_cast<int64_t>(count * sizeof(T));
    ATTN_CHECK(used_ <= capacity_, "image of ", used_, " bytes in ", capacity_);
    return {reinterpret_cast<T*>(host_ + begin), reinterpret_cast<T*>(device_ + begin)};
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* const host_;
  uint8_t* const device_;
  const int64_t capacity_;
  int64_t used_ = 0;
};

}  // namespace attn::cuda
