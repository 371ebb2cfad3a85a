// Whether the load generator kept up: how many sends left later than they should have.
//
// A request should leave at its arrival time; the next layer of a step when the answer to the layer
// before is there. What the generator itself adds until it begins to send is its delay.
#pragma once

#include <cstdint>
#include <mutex>

#include "attn/base/clock.h"
#include "tools/loadgen/samples.h"

namespace attn::loadgen {

class SendLedger {
 public:
  static constexpr Nanos kLateAfter = kMillisecond;
  // More late sends than this share make a run invalid.
  static constexpr double kMaxLateShare = 0.01;

  // Any thread.
  void Note(Nanos intended, Nanos sent) {
    const std::lock_guard lock(mutex_);
    ++sends_;
    if (sent - intended > kLateAfter) ++late_;
    delays_ms_.Add(static_cast<double>(sent - intended) / kMillisecond);
  }

  uint64_t sends() const { return sends_; }
  uint64_t late() const { return late_; }
  double late_share() const {
    return sends_ == 0 ? 0 : static_cast<double>(late_) / static_cast<double>(sends_);
  }
  bool is_valid() const { return late_share() <= kMaxLateShare; }
  const Samples& delays_ms() const { return delays_ms_; }

 private:
  std::mutex mutex_;
  uint64_t sends_ = 0;
  uint64_t late_ = 0;
  Samples delays_ms_;
};

}  // namespace attn::loadgen
