#include "attention/cuda/backend/bulk_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace attn::cuda {
namespace {

constexpr int64_t kSmallBytes = 2 << 10;  // not worth remembering
constexpr int64_t kJobBytes = 128 << 10;
// What one thread copies in the time that it takes to wake another.
constexpr int64_t kBytesWorthWaking = 512 << 10;

}  // namespace

void BulkCopier::Add(void* target, const void* source, int64_t bytes) {
  if (bytes <= kSmallBytes) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
    return;
  }
  bytes_ += bytes;
  for (int64_t first = 0; first < bytes; first += kJobBytes) {
    jobs_.push_back({static_cast<uint8_t*>(target) + first,
                     static_cast<const uint8_t*>(source) + first,
                     std::min(kJobBytes, bytes - first)});
  }
}

void BulkCopier::Finish() {
  std::atomic<size_t> next = 0;
  const auto copy_all = [&](int) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < jobs_.size();) {
      std::memcpy(jobs_[i].target, jobs_[i].source, static_cast<size_t>(jobs_[i].bytes));
    }
  };
  if (bytes_ < kBytesWorthWaking) {
    copy_all(0);
  } else {
    pool_.Run(pool_.num_threads(), copy_all);
  }
  jobs_.clear();
  bytes_ = 0;
}

}  // namespace attn::cuda
