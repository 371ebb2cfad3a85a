// The variant of attention as run-time values: what stands between q·k and the weights.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace attn {

// Keys p-left .. p+right of a row at position p stay visible. Absent: no limit on that side.
struct WindowSpec {
  std::optional<uint32_t> left;
  std::optional<uint32_t> right;
};

struct ScoreSpec {
  // logit = softmax_scale * (q·k). Zero and negative values are legal.
  float softmax_scale = 1.0f;
  // 0: none; else logits become cap * tanh(logit / cap), before masking.
  float logit_soft_cap = 0.0f;
  WindowSpec window;
  // Learned logits that join the denominator once per row, never scaled or capped:
  // [num_layers, num_q_heads, sink_logits_per_head]; empty if sink_logits_per_head is 0.
  uint32_t sink_logits_per_head = 0;
  std::vector<float> sink_logits;
};

}  // namespace attn
