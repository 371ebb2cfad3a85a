#include "tools/loadgen/run_stats.h"

#include <algorithm>

namespace attn::loadgen {

void RunStats::Add(const RunStats& other) {
  requests_done += other.requests_done;
  requests_good += other.requests_good;
  requests_failed += other.requests_failed;
  if (first_failure.empty()) first_failure = other.first_failure;
  prompt_tokens += other.prompt_tokens;
  generated_tokens += other.generated_tokens;
  steps += other.steps;
  layer_requests += other.layer_requests;
  max_active = std::max(max_active, other.max_active);
  first_token_ms.AddAll(other.first_token_ms);
  step_ms.AddAll(other.step_ms);
  launch_items.AddAll(other.launch_items);
  launch_q_rows.AddAll(other.launch_q_rows);
  queue_ms.AddAll(other.queue_ms);
  compute_ms.AddAll(other.compute_ms);
}

}  // namespace attn::loadgen
