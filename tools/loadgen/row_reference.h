// One row of attention in float64, written from the definition: no tiles, no online softmax,
// nothing shared with the server.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/loadgen/model_plan.h"

namespace attn::loadgen {

struct ReferenceRow {
  std::vector<double> out;  // [num_q_heads, head_dim]
  std::vector<double> lse;  // [num_q_heads]; natural log
  // Largest error of `out` if weights and results are rounded to the model's dtype and nothing else
  // is; 0 for float32.
  double naive_error = 0;
};

// The row at `position` over the keys 0..position of its layer, causal, with the layer's window and
// sinks and the model's soft cap.
//   q [num_q_heads, head_dim], k and v [position + 1, num_kv_heads, head_dim], exact values.
ReferenceRow ComputeReferenceRow(const ModelPlan& model, const LayerRule& layer, uint32_t position,
                                 const float* q, const float* k, const float* v);

// Largest error that is no fault, for values whose largest magnitude is `absmax`: three times the
// error of a naive computation in the dtype, which counts as half a unit in the last place of
// absmax at least, and 1e-5 * (1 + absmax).
double Tolerance(DType dtype, double absmax, double naive_error);

}  // namespace attn::loadgen
