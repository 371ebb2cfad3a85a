#include "tools/loadgen/model_plan.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

namespace attn::loadgen {
namespace {

client::LayerGroup GroupOf(const Options& o, uint32_t first, uint32_t end) {
  client::LayerGroup group;
  for (uint32_t layer = first; layer < end; ++layer) group.layers.push_back(layer);
  group.num_q_heads = o.q_heads;
  group.num_kv_heads = o.kv_heads;
  group.head_dim_qk = o.head_dim;
  group.head_dim_v = o.head_dim;
  group.logit_soft_cap = static_cast<float>(o.soft_cap);
  return group;
}

}  // namespace

ModelPlan PlanModel(const Options& o) {
  ModelPlan plan;
  plan.num_q_heads = o.q_heads;
  plan.num_kv_heads = o.kv_heads;
  plan.head_dim = o.head_dim;
  plan.softmax_scale = 1.0f / std::sqrt(static_cast<float>(o.head_dim));
  plan.soft_cap = static_cast<float>(o.soft_cap);
  plan.dtype = o.dtype;
  plan.layers.resize(o.layers);
  client::ModelSpec& spec = plan.spec;
  spec.activation_dtype = o.dtype;
  spec.page_size = o.page_size;
  spec.num_layers = o.layers;
  const uint32_t first_windowed = o.layers - o.windowed_layers;
  if (first_windowed > 0) spec.layer_groups.push_back(GroupOf(o, 0, first_windowed));
  if (o.windowed_layers > 0) {
    client::LayerGroup group = GroupOf(o, first_windowed, o.layers);
    group.window.left = o.window - 1;
    group.sink_logits_per_head = o.sinks;
    std::mt19937_64 random(o.seed);
    std::uniform_real_distribution<float> sink(-2, 4);
    for (uint32_t layer = first_windowed; layer < o.layers; ++layer) {
      LayerRule& rule = plan.layers[layer];
      rule.window_left = group.window.left;
      rule.sinks_per_head = o.sinks;
      for (uint32_t i = 0; i < o.q_heads * o.sinks; ++i) rule.sinks.push_back(sink(random));
      group.sink_logits.insert(group.sink_logits.end(), rule.sinks.begin(), rule.sinks.end());
    }
    spec.layer_groups.push_back(std::move(group));
  }
  spec.name = absl::StrCat("loadgen.", NameOf(o.dtype), ".l", o.layers, ".h", o.q_heads, "-",
                           o.kv_heads, ".d", o.head_dim, ".w", o.windowed_layers, "x", o.window,
                           ".s", o.sinks, ".c", o.soft_cap, ".p", o.page_size, ".", o.seed);
  return plan;
}

}  // namespace attn::loadgen
