// Whether a launch should wait a moment for more calls. Pure.
//
// A lone caller sends its next call when it has the answer to the last one, so it is never seen
// together with another call and must never wait. Several callers that were answered by one launch
// come back one behind another; launching for the first of them alone would keep the launches
// small for ever. So:
//   * what counts is how many calls launches have held lately, the largest of the last 4 to 8 ms;
//   * if that is 1, nothing waits;
//   * else a launch waits until as many calls are there, at most max_wait from the moment at which
//     the oldest of them could have started;
//   * every 32nd launch waits for twice as many, to find out whether the callers have become more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "attn/base/clock.h"

namespace attn::server {

class GatherRule {
 public:
  explicit GatherRule(Nanos max_wait) : max_wait_(max_wait) {}

  struct Wait {
    size_t num_calls = 0;  // in all, those already there included
    Nanos until = 0;
  };
  // `num_calls` could start now, the first of them since `since`.
  std::optional<Wait> WaitFor(size_t num_calls, Nanos since, Nanos now) {
    if (max_wait_ == 0 || num_calls == 0) return std::nullopt;
    Roll(now);
    const size_t lately = std::max(largest_, largest_before_);
    if (lately < 2) return std::nullopt;
    const bool probe = num_launches_ % kLaunchesPerProbe == 0;
    const Wait wait{probe ? 2 * lately : lately, since + max_wait_};
    if (num_calls >= wait.num_calls || now >= wait.until) return std::nullopt;
    return wait;
  }

  // A launch starts that holds items of so many calls.
  void Launched(size_t num_calls, Nanos now) {
    Roll(now);
    largest_ = std::max(largest_, num_calls);
    ++num_launches_;
  }

 private:
  static constexpr Nanos kPeriod = 4 * kMillisecond;
  static constexpr size_t kLaunchesPerProbe = 32;

  void Roll(Nanos now) {
    if (now < period_end_) return;
    largest_before_ = now < period_end_ + kPeriod ? largest_ : 0;
    largest_ = 0;
    period_end_ = now + kPeriod;
  }

  const Nanos max_wait_;
  Nanos period_end_ = 0;
  size_t largest_ = 0;         // calls in a launch of this period
  size_t largest_before_ = 0;  // and of the one before
  size_t num_launches_ = 0;
};

}  // namespace attn::server
