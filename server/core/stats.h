// What the engine counts. Written by the engine thread, read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "attn/base/clock.h"
#include "attn/base/error.h"

namespace attn::server {

// A number that one thread changes and any thread reads.
class Counter {
 public:
  void Add(uint64_t by) { value_.store(value() + by, std::memory_order_relaxed); }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Max(uint64_t candidate) {
    if (candidate > value()) Set(candidate);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct EngineStats {
  Counter steps;
  Counter launches;
  Counter launched_items;  // items (a chunk counts as one)
  Counter launched_q_rows;
  Counter launched_layers;   // distinct (model, layer) pairs, summed over launches
  Counter launched_callers;  // distinct calls, summed over launches
  Counter launched_clients;  // distinct streams (a unary call is one), summed over launches
  Counter multi_client_multi_layer_launches;  // at least two of each
  Counter appended_tokens;                    // (token, layer) pairs written
  Counter replayed_items;
  Counter prefill_chunks;
  Counter page_copies;
  Counter calls_completed;
  Counter items_failed;
  Counter expired_sequences;
  Counter attend_ns;    // in Launch and Wait
  Counter schedule_ns;  // in the engine, outside Launch and Wait, while there was work
  Counter longest_step_ns;
  std::array<Counter, 32> failures_by_reason;
};

}  // namespace attn::server
