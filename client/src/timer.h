// Runs functions later, on one thread of the process that all clients share.
#pragma once

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
  Timer() = default;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Nanos, std::function<void()>> due_;  // by time of Clock::Real()
};

}  // namespace attn::client
