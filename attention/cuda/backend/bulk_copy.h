// Copies between the callers' memory and page-locked memory, by several threads where there is much
// to copy: one thread moves 8 GB/s here, the device's link 50.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cpu/worker_pool.h"

namespace attn::cuda {

// One thread at a time.
class BulkCopier {
 public:
  // The calling thread counts.
  explicit BulkCopier(int num_threads) : pool_(num_threads) {}

  // Copies by the end of Finish; both must stay until then and not overlap with others.
  void Add(void* target, const void* source, int64_t bytes);
  void Finish();

 private:
  struct Job {
    uint8_t* target;
    const uint8_t* source;
    int64_t bytes;
  };

  cpu::WorkerPool pool_;
  std::vector<Job> jobs_;
  int64_t bytes_ = 0;
};

}  // namespace attn::cuda
