// Parking, waking and joining the workers of a launch.
#include "attention/cpu/worker_pool.h"

#include "attention/cpu/flush_denormals.h"
#include "attn/base/check.h"

namespace attn::cpu {

WorkerPool::WorkerPool(int num_threads) {
  ATTN_CHECK(num_threads >= 1, "num_threads ", num_threads);
  threads_.reserve(static_cast<size_t>(num_threads) - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { Loop(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Run(int num_workers, const std::function<void(int)>& work) {
  ATTN_CHECK(num_workers >= 1 && num_workers <= num_threads(), "num_workers ", num_workers,
             " num_threads ", num_threads());
  if (num_workers > 1) {
    {
      std::lock_guard lock(mutex_);
      work_ = &work;
      ++generation_;
      num_workers_ = num_workers;
    }
    wake_.notify_all();
  }
  {
    const FlushDenormals flush;
    work(0);
  }
  if (num_workers > 1) {
    std::unique_lock lock(mutex_);
    work_ = nullptr;
    done_.wait(lock, [this] { return running_ == 0; });
  }
}

void WorkerPool::Loop(int worker) {
  const FlushDenormals flush;
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    if (work_ == nullptr || worker >= num_workers_) continue;
    const std::function<void(int)>& work = *work_;
    ++running_;
    lock.unlock();
    work(worker);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace attn::cpu
