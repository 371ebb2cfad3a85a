// What a run has measured, summed over its engines.
#pragma once

#include <cstdint>
#include <string>

#include "tools/loadgen/samples.h"

namespace attn::loadgen {

struct RunStats {
  uint64_t requests_done = 0;
  uint64_t requests_good = 0;  // within the goodput limits
  uint64_t requests_failed = 0;
  std::string first_failure;   // empty if none
  uint64_t prompt_tokens = 0;  // walked through all layers
  uint64_t generated_tokens = 0;
  uint64_t steps = 0;  // of engines; each walks all layers
  uint64_t layer_requests = 0;
  uint32_t max_active = 0;  // sequences of all engines at once
  Samples first_token_ms;   // from the request's arrival time
  Samples step_ms;          // per output token after the first
  // From the server's Timing, one sample per layer request.
  Samples launch_items;
  Samples launch_q_rows;
  Samples queue_ms;
  Samples compute_ms;

  void Add(const RunStats& other);
};

}  // namespace attn::loadgen
