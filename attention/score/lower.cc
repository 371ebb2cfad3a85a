// The only code that knows both the user's words for a variant and the kernels'.
#include "attention/score/lower.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "attention/score/online_softmax.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn::score {

static_assert(kPositionLimit == kUnbounded, "a side without a limit reaches past every position");

VisibleRange RangeOf(const AttentionSpec& spec, const AttendEntry& entry) {
  const WindowSpec& window = spec.score.window;
  VisibleRange range;
  if (window.left.has_value()) range.left = *window.left;
  if (window.right.has_value()) range.right = *window.right;
  if (entry.causal) range.right = 0;
  range.kv_end = entry.kv_end;
  return range;
}

LoweredScore Lower(const AttentionSpec& spec, const AttendEntry& entry) {
  const ScoreSpec& given = spec.score;
  LoweredScore lowered;
  const float scale = std::fabs(given.softmax_scale);
  // Kernels flush denormals, so such a scale is the same as zero: all logits equal.
  const bool is_zero = scale < FLT_MIN;
  lowered.query_factor = is_zero ? 0.0f : (given.softmax_scale < 0 ? -1.0f : 1.0f);
  if (given.logit_soft_cap > 0) {
    lowered.op.cap = std::max(given.logit_soft_cap, FLT_MIN);
    lowered.op.input_scale = std::min((is_zero ? 1.0f : scale) / lowered.op.cap, FLT_MAX);
  } else {
    lowered.natural_scale = is_zero ? 1.0f : scale;
  }
  lowered.log2_scale = std::min(lowered.natural_scale * kLog2E, FLT_MAX);
  lowered.range = RangeOf(spec, entry);
  if (entry.use_sinks && given.sink_logits_per_head > 0) {
    lowered.num_sinks = given.sink_logits_per_head;
    lowered.sinks = given.sink_logits.data() +
                    size_t{entry.layer} * spec.num_q_heads * given.sink_logits_per_head;
  }
  return lowered;
}

}  // namespace attn::score
