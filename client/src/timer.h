// Runs functions later, on one thread of the process that all clients share.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "attn/base/clock.h"

namespace attn::client {

class Timer {
 public:
  // Started at first use; lives as long as the process.
  static Timer& Shared();

  // Any thread. `function` must not block for long.
  void After(Nanos delay, std::function<void()> function);

 private:
  // Uses no object that ends with main, Clock::Real() for one.
  Timer() = default;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
};

}  // namespace attn::client
