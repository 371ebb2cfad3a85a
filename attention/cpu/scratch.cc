// Scratch lies in huge pages where the system grants them: a task walks half a megabyte of it.
#include "attention/cpu/scratch.h"

#include <sys/mman.h>

#include "attn/base/check.h"

namespace attn::cpu {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kRowsFloats = kMaxRows * kRowStride;
constexpr size_t kMaxHeadDim = 256;
constexpr size_t kTileFloats = size_t{kTileKeys} * kMaxHeadDim + kMaxLanes;
constexpr size_t kTotalFloats =
    3 * kRowsFloats + kTileFloats + kMaxRows * (kMaxLanes + 5) + 16 * kMaxLanes;

MappedFloats Map(size_t bytes) {
  bytes = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ATTN_CHECK(memory != MAP_FAILED, "no memory for scratch, bytes ", bytes);
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return MappedFloats(static_cast<float*>(memory), UnmapFloats{bytes});
}

}  // namespace

void UnmapFloats::operator()(float* memory) const { munmap(memory, bytes); }

Scratch::Scratch() : memory_(Map(kTotalFloats * sizeof(float))) {
  query = Take(kRowsFloats);
  scores = Take(kRowsFloats);
  out = Take(kRowsFloats);
  tile = Take(kTileFloats);
  lane_max = Take(kMaxRows * kMaxLanes);
  max = Take(kMaxRows);
  sum = Take(kMaxRows);
  rescale = Take(kMaxRows);
  static_assert(sizeof(KeyRange) == 2 * sizeof(float));
  keys = reinterpret_cast<KeyRange*>(Take(2 * kMaxRows));
}

Scratch::~Scratch() = default;

float* Scratch::Take(size_t floats) {
  float* start = memory_.get() + taken_;
  taken_ += (floats + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  ATTN_CHECK(taken_ <= kTotalFloats, "taken ", taken_);
  return start;
}

float* Scratch::Stack(size_t floats) {
  if (floats * sizeof(float) > stack_.get_deleter().bytes) stack_ = Map(floats * sizeof(float));
  return stack_.get();
}

}  // namespace attn::cpu
