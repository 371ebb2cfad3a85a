// Threads that help with a launch. The calling thread is worker 0; the others are parked between
// launches and cost nothing then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace attn::cpu {

// One thread calls Run; others may not use the same pool at the same time.
class WorkerPool {
 public:
  // Starts num_threads - 1 threads. REQUIRES: num_threads >= 1.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(0) on the calling thread and, at the same time, work(i) at most once on each helper
  // i < num_workers that wakes before work(0) returns; returns when all calls have. So work(0) must
  // do whatever nobody else has begun. Denormals are flushed to zero in all calls.
  // REQUIRES: 1 <= num_workers <= num_threads().
  void Run(int num_workers, const std::function<void(int worker)>& work);

 private:
  void Loop(int worker);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  // All below are guarded by mutex_.
  const std::function<void(int)>* work_ = nullptr;  // null: nothing to join
  uint64_t generation_ = 0;                         // of the current Run
  int num_workers_ = 0;                             // of the current Run
  int running_ = 0;                                 // helpers inside work
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace attn::cpu
