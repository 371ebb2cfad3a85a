// The model a run declares: all layers of one geometry, the last of them windowed with sinks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/client/model.h"
#include "tools/loadgen/options.h"

namespace attn::loadgen {

// What the arithmetic of one layer needs to know.
struct LayerRule {
  std::optional<uint32_t> window_left;
  uint32_t sinks_per_head = 0;
  std::vector<float> sinks;  // [num_q_heads, sinks_per_head]
};

struct ModelPlan {
  client::ModelSpec spec;
  std::vector<LayerRule> layers;
  uint32_t num_q_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  float softmax_scale = 0;
  float soft_cap = 0;
  DType dtype = DType::kFloat32;

  uint32_t group_size() const { return num_q_heads / num_kv_heads; }
  size_t q_elements() const { return size_t{num_q_heads} * head_dim; }    // per token
  size_t kv_elements() const { return size_t{num_kv_heads} * head_dim; }  // per token, k or v
};

// Sink values follow from the seed.
ModelPlan PlanModel(const Options& options);

}  // namespace attn::loadgen
