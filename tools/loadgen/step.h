// One engine step: which rows of which sequences it walks through the layers, and the request of
// each layer.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/client/attend.h"
#include "tools/loadgen/bit_flip.h"
#include "tools/loadgen/model_plan.h"
#include "tools/loadgen/tensor_source.h"
#include "tools/loadgen/trace_reader.h"

namespace attn::loadgen {

// A request while its engine works on it.
struct ActiveSequence {
  uint64_t number = 0;  // in the plan
  TraceRequest plan;
  Nanos arrival = 0;  // intended, on Clock::Real()
  SequenceId id;
  uint32_t len = 0;  // tokens that went through all layers
  uint32_t tokens_out = 0;
  Nanos first_token = 0;
  Nanos last_token = 0;
  bool failed = false;

  bool is_prefilling() const { return len < plan.context_len; }
};

struct StepItem {
  ActiveSequence* sequence = nullptr;
  uint32_t rows = 0;  // from position sequence->len on
};

// All decoding sequences with one row each, then prompts in order until `prefill_chunk` rows are
// full: a mixed batch as engines with chunked prefill make it.
std::vector<StepItem> ComposeStep(const std::vector<ActiveSequence*>& active,
                                  uint32_t prefill_chunk);

// Makes the request of one layer; owns its tensors until the next Build.
class LayerRequest {
 public:
  LayerRequest(const ModelPlan* model, const TensorSource* source)
      : model_(model), source_(source) {}

  // `flipper` may be null; else it gets the first chance at a row of the sampled `share` that has
  // other keys to see.
  const client::AttendRequest& Build(const std::vector<StepItem>& items, uint32_t layer,
                                     BitFlipper* flipper, double share);

 private:
  const ModelPlan* const model_;
  const TensorSource* const source_;
  client::AttendRequest request_;
  std::vector<char> q_;  // [rows, num_q_heads, head_dim]
  std::vector<char> k_;  // [rows, num_kv_heads, head_dim]
  std::vector<char> v_;
};

}  // namespace attn::loadgen
