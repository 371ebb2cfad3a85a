// Numbers that one thread writes and any thread reads, without a lock: a counter, and how often
// values fell into fixed ranges.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attn/base/clock.h"

namespace attn::server {

class Counter {
 public:
  void Add(uint64_t by) { value_.store(value() + by, std::memory_order_relaxed); }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Max(uint64_t candidate) {
    if (candidate > value()) Set(candidate);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Upper bounds of ranges, each belonging to its range. Times in ns, from 50 us to 30 s.
inline constexpr std::array<uint64_t, 18> kTimeBounds = {
    50 * kMicrosecond,  100 * kMicrosecond,  250 * kMicrosecond,  500 * kMicrosecond,
    1 * kMillisecond,   2500 * kMicrosecond, 5 * kMillisecond,    10 * kMillisecond,
    25 * kMillisecond,  50 * kMillisecond,   100 * kMillisecond,  250 * kMillisecond,
    500 * kMillisecond, 1 * kSecond,         2500 * kMillisecond, 5 * kSecond,
    10 * kSecond,       30 * kSecond};
inline constexpr std::array<uint64_t, 13> kCountBounds = {1,   2,   4,   8,    16,   32,  64,
                                                          128, 256, 512, 1024, 2048, 4096};

class Histogram {
 public:
  static constexpr size_t kMaxBounds = 18;

  // `bounds` rise and live as long as the histogram.
  explicit constexpr Histogram(std::span<const uint64_t> bounds) : bounds_(bounds) {}

  // The one writer. A few compares and two stores.
  void Observe(uint64_t value) {
    size_t range = 0;
    while (range < bounds_.size() && value > bounds_[range]) ++range;
    counts_[range].Add(1);
    sum_.Add(value);
  }

  std::span<const uint64_t> bounds() const { return bounds_; }
  // Any thread. How many values are at most bounds()[i]; the last element: all values.
  std::vector<uint64_t> CumulativeCounts() const {
    std::vector<uint64_t> cumulative(bounds_.size() + 1);
    uint64_t below = 0;
    for (size_t i = 0; i < cumulative.size(); ++i) cumulative[i] = below += counts_[i].value();
    return cumulative;
  }
  uint64_t count() const { return CumulativeCounts().back(); }
  uint64_t sum() const { return sum_.value(); }

 private:
  const std::span<const uint64_t> bounds_;
  std::array<Counter, kMaxBounds + 1> counts_;
  Counter sum_;
};

static_assert(kTimeBounds.size() <= Histogram::kMaxBounds &&
              kCountBounds.size() <= Histogram::kMaxBounds);

}  // namespace attn::server
