// What a server counts. Each number has one writer or is added to atomically; any thread reads.
// metric_table.h gives every one of them its name.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <variant>

#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "server/core/call.h"
#include "server/core/histogram.h"

namespace attn::server {

// A number that any thread adds to.
class SharedCounter {
 public:
  void Add(uint64_t by) { value_.fetch_add(by, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

inline constexpr size_t kNumReasons = static_cast<size_t>(Reason::kModelInUse) + 1;

// One number for each Reason.
template <typename Number>
class ByReason {
 public:
  Number& operator[](Reason reason) { return numbers_[static_cast<size_t>(reason)]; }
  const Number& operator[](Reason reason) const { return numbers_[static_cast<size_t>(reason)]; }

 private:
  std::array<Number, kNumReasons> numbers_;
};

// Written by the engine thread.
struct EngineStats {
  Counter steps;
  Counter launches;
  Counter failed_launches;
  Histogram launch_items{kCountBounds};    // items (a chunk counts as one)
  Histogram launch_layers{kCountBounds};   // distinct (model, layer) pairs
  Histogram launch_clients{kCountBounds};  // distinct streams (a unary call is one)
  Histogram launch_time{kTimeBounds};      // ns in Launch and Wait
  Counter launched_q_rows;
  Counter launched_callers;                   // distinct calls, summed over launches
  Counter multi_client_multi_layer_launches;  // at least two of each
  Counter appended_tokens;                    // (token, layer) pairs written
  Counter replayed_items;
  Counter prefill_chunks;
  Counter page_copies;
  Counter opened_sequences;
  Counter forked_sequences;  // children
  Counter expired_sequences;
  Counter expired_owners;
  Counter schedule_ns;  // in the engine, outside Launch and Wait, while there was work
  Counter longest_step_ns;

  Counter calls_completed;
  std::array<Counter, std::variant_size_v<Request>> completed_by_kind;  // by index in Request
  Counter items_completed;                                              // of Attend calls
  Counter items_failed;                                                 // of these
  // Of Attend calls, ns. Calls that were in no launch are only in the last one.
  Histogram queue_time{kTimeBounds};    // from arrival to the first launch
  Histogram compute_time{kTimeBounds};  // in launches
  Histogram call_time{kTimeBounds};     // from arrival until the answer is handed over
  ByReason<Counter> refused_calls;      // as a whole
  ByReason<Counter> refused_items;      // of calls that were answered
};

// Written by the threads of the border, which take requests in and send answers.
struct BorderStats {
  alignas(64) SharedCounter received_bytes;  // of request messages
  alignas(64) SharedCounter sent_bytes;      // of response messages
  // What never reached the engine.
  alignas(64) ByReason<SharedCounter> refused_calls;
  ByReason<SharedCounter> refused_items;
};

}  // namespace attn::server
