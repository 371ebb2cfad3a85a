// Time as the code sees it: monotonic, in nanoseconds, replaceable in tests.
#pragma once

#include <atomic>
#include <cstdint>

namespace attn {

// Nanoseconds since some fixed point of this process. Never wall-clock time.
using Nanos = int64_t;
inline constexpr Nanos kNever = INT64_MAX;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  // Any thread.
  virtual Nanos Now() const = 0;
  // The steady clock of the system; lives for ever.
  static const Clock& Real();
};

// Moves only when told to. Any thread.
class FakeClock : public Clock {
 public:
  explicit FakeClock(Nanos start = kSecond) : now_(start) {}
  Nanos Now() const override { return now_.load(std::memory_order_acquire); }
  void Advance(Nanos by) { now_.fetch_add(by, std::memory_order_acq_rel); }

 private:
  std::atomic<Nanos> now_;
};

}  // namespace attn
