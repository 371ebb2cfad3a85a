// Corrupts one key on its way to the server, so that a test can see the verification notice.
#pragma once

#include <atomic>

#include "tools/loadgen/model_plan.h"

namespace attn::loadgen {

// Flips the top exponent bit of one element, once per run. Any thread.
class BitFlipper {
 public:
  // `q` and `k` are one row each, [num_q_heads, head_dim] and [num_kv_heads, head_dim] in the
  // model's dtype: those of a sampled row, which sees its own key. The element is one whose product
  // with q is positive, so the key's weight becomes about 1. False if it was done before or no
  // element fits.
  bool Flip(const ModelPlan& model, const char* q, char* k);
  bool is_done() const { return done_.load(); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace attn::loadgen
