// What is uniform in a launch: geometry, types and variant of one layer group.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "attn/attention/score_spec.h"
#include "attn/base/dtype.h"

namespace attn {

struct AttentionSpec {
  uint32_t num_layers = 1;  // layers in the group; they share pages
  uint32_t num_q_heads = 1;
  uint32_t num_kv_heads = 1;  // divides num_q_heads; query head h reads KV head h / group_size()
  uint32_t head_dim_qk = 64;
  uint32_t head_dim_v = 64;
  DType activation_dtype = DType::kFloat32;  // of q, k, v as given
  DType kv_dtype = DType::kFloat32;          // in the cache
  uint32_t page_size = 16;                   // tokens per page
  ScoreSpec score;

  uint32_t group_size() const { return num_q_heads / num_kv_heads; }
};

// OK if the spec is meaningful on some backend: counts positive and dividing, floats finite, sink
// count right. INVALID naming the field otherwise.
absl::Status Validate(const AttentionSpec& spec);

}  // namespace attn
