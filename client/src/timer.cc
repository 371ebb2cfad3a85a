#include "client/src/timer.h"

#include <chrono>
#include <thread>
#include <utility>

namespace attn::client {

Timer& Timer::Shared() {
  // Never destroyed: its thread may outlive main.
  static Timer* const timer = [] {
    auto* made = new Timer;
    std::thread([made] { made->Run(); }).detach();
    return made;
  }();
  return *timer;
}

void Timer::After(Nanos delay, std::function<void()> function) {
  const auto when = std::chrono::steady_clock::now() + std::chrono::nanoseconds(delay);
  const std::lock_guard lock(mutex_);
  due_.emplace(when, std::move(function));
  if (due_.begin()->first == when) changed_.notify_one();
}

void Timer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (due_.begin()->first > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(due_.begin()->first));
      continue;
    }
    std::function<void()> function = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    lock.unlock();
    function();
    function = nullptr;  // its captures go without the lock
    lock.lock();
  }
}

}  // namespace attn::client
