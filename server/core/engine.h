// The engine: one thread that owns the cache, the batcher and the device of a server.
//
//   Engine engine(options, std::move(backend), &registry);
//   engine.Start();
//   engine.Submit(std::move(call));         // its sink gets it back, settled
//   engine.Stop();                          // answers everything accepted, then joins
#pragma once

#include <cstdint>
#include <memory>

#include "attn/attention/backend.h"
#include "attn/base/clock.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/call.h"
#include "server/core/call_queue.h"
#include "server/core/engine_observer.h"
#include "server/core/model_registry.h"
#include "server/core/stats.h"

namespace attn::server {

struct EngineOptions {
  int64_t kv_bytes = int64_t{1} << 30;  // byte budget of all pages of all models
  uint32_t max_sequences = 65536;
  uint32_t max_sequence_len = 1u << 20;
  uint32_t remembered_appends = 8;
  CallQueueLimits queue;
  // Prefill in one step is cut so that the step stays near this.
  Nanos chunk_time = 5 * kMillisecond;
  // Longest wait for more calls before a launch while many callers are active; 0: never wait.
  Nanos max_batch_wait = 50 * kMicrosecond;
  uint32_t max_launch_items = 4096;
  // Stop answers DRAINING to whatever is unfinished after this.
  Nanos drain_grace = 10 * kSecond;
};

class Engine {
 public:
  // `registry`, `clock` and `observer` (may be null) outlive the engine.
  Engine(const EngineOptions& options, std::unique_ptr<Backend> backend, ModelRegistry* registry,
         const Clock* clock = &Clock::Real(), EngineObserver* observer = nullptr);
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void Start();
  // Closes the queue, finishes what was accepted (within drain_grace), joins the thread.
  void Stop();

  // Any thread. Estimates how long the call will take, then as CallQueue::Push.
  absl::Status Submit(std::unique_ptr<Call> call);
  CallQueue& queue();
  const CallQueue& queue() const;
  const EngineStats& stats() const;  // any thread
  const EngineOptions& options() const;
  // As of the last idle moment or step; any thread.
  kvcache::CacheStats cache_stats() const;
  std::string device_name() const;
  // Any thread. OK, or why the device computes no more.
  absl::Status device_error() const;
  // Any thread. OK, or why the device does not compute this.
  absl::Status Supports(const AttentionSpec& spec) const;
  // Steps done and the time of the last one: a watchdog's proof of progress. Any thread.
  uint64_t heartbeat() const;

  // One turn on the calling thread, instead of the engine's own: takes what has arrived (never
  // waits) and does one step. Returns whether anything was done. One thread at a time, which is the
  // engine thread meanwhile. REQUIRES: not started.
  bool StepByHand();
  // Closes every sequence that clients have left open, and says what is left after that: anything
  // but zero sequences and pages is a leak. REQUIRES: stopped.
  kvcache::CacheStats CloseAllSequences();
  // OK, or what does not add up in the books of pages and sequences. REQUIRES: stopped.
  absl::Status CheckAccounts() const;
  // REQUIRES: not started, or stopped.
  kvcache::KvCache& cache_for_test();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace attn::server
