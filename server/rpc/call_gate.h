// Counts the calls between their acceptance and their answer, and closes the door when the server
// drains.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace attn::server {

class CallGate {
 public:
  // Any thread. False after Close: the call is to be refused. Each true needs one Leave.
  bool Enter() {
    if ((state_.fetch_add(kOne, std::memory_order_acq_rel) & kClosed) == 0) return true;
    Leave();
    return false;
  }
  // Any thread.
  void Leave() {
    if (state_.fetch_sub(kOne, std::memory_order_acq_rel) != (kOne | kClosed)) return;
    const std::lock_guard lock(mutex_);
    idle_.notify_all();
  }
  void Close() { state_.fetch_or(kClosed, std::memory_order_acq_rel); }
  // Calls inside.
  size_t size() const { return state_.load(std::memory_order_acquire) / kOne; }
  bool closed() const { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }
  // REQUIRES: closed. False if calls are still inside at `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return idle_.wait_until(lock, deadline,
                            [this] { return state_.load(std::memory_order_acquire) == kClosed; });
  }

 private:
  static constexpr uint64_t kClosed = 1;
  static constexpr uint64_t kOne = 2;

  std::atomic<uint64_t> state_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
};

}  // namespace attn::server
