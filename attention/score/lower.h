// The variant as kernels see it: a POD of factors, limits and pointers, made from the user's words
// in one place.
#pragma once

#include <cstdint>

#include "attention/score/logit.h"
#include "attention/score/visible_range.h"

namespace attn {
struct AttentionSpec;
struct AttendEntry;
}  // namespace attn

namespace attn::score {

struct LoweredScore {
  // Scales are positive in here: the sign sits in the query, 0 for a scale of zero.
  float query_factor = 1.0f;
  ScoreOp op;                  // dot product -> score
  float natural_scale = 1.0f;  // natural logit = natural_scale * score
  float log2_scale = 1.0f;     // natural_scale * log2(e)
  VisibleRange range;
  const float* sinks = nullptr;  // [num_q_heads, num_sinks] of the entry's layer, natural logits
  uint32_t num_sinks = 0;
};

// REQUIRES: Validate(spec).ok(), entry.layer < spec.num_layers. The result points into the spec.
LoweredScore Lower(const AttentionSpec& spec, const AttendEntry& entry);
// The part of it that says who sees whom.
VisibleRange RangeOf(const AttentionSpec& spec, const AttendEntry& entry);

}  // namespace attn::score
