// Workers share tasks, come back to rest, and leave the caller's floating-point mode alone.
#include "attention/cpu/worker_pool.h"

#include <xmmintrin.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace attn::cpu {
namespace {

TEST(WorkerPoolTest, EveryTaskOfManyRunsIsDoneOnce) {
  for (const int num_threads : {1, 2, 5}) {
    WorkerPool pool(num_threads);
    for (int run = 0; run < 300; ++run) {
      const int num_workers = 1 + run % num_threads;
      const size_t num_tasks = static_cast<size_t>(run % 17);
      std::vector<int> done(num_tasks);
      std::atomic<size_t> next = 0;
      pool.Run(num_workers, [&](int worker) {
        EXPECT_LT(worker, num_workers);
        for (size_t task; (task = next.fetch_add(1)) < num_tasks;) ++done[task];
      });
      EXPECT_EQ(done, std::vector<int>(num_tasks, 1));
    }
  }
}

TEST(WorkerPoolTest, HelpersTakePart) {
  WorkerPool pool(2);
  std::atomic<bool> has_helped = false;
  pool.Run(2, [&](int worker) {
    if (worker == 1) has_helped = true;
    while (!has_helped) _mm_pause();
  });
  EXPECT_TRUE(has_helped);
}

TEST(WorkerPoolTest, DenormalsAreFlushedInWorkAndKeptOutside) {
  const unsigned before = _mm_getcsr();
  WorkerPool pool(2);
  std::atomic<int> flushed = 0;
  std::atomic<bool> has_helped = false;
  pool.Run(2, [&](int worker) {
    volatile float tiny = std::numeric_limits<float>::min();
    if (tiny / 4 == 0.0f) ++flushed;
    if (worker == 1) has_helped = true;
    while (!has_helped) _mm_pause();
  });
  EXPECT_EQ(flushed, 2);
  EXPECT_EQ(_mm_getcsr() & 0x8040u, before & 0x8040u);
  volatile float tiny = std::numeric_limits<float>::min();
  EXPECT_NE(tiny / 4, 0.0f);
}

}  // namespace
}  // namespace attn::cpu
