// The geometry of a model, as the embedder declares it. No weights live in the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/attention/attention_spec.h"

namespace attn::engine {

// Layers with equal geometry and mask.
struct LayerGroup {
  std::vector<uint32_t> layers = {};
  // DeclareModel sets num_layers and page_size; all else counts as it stands, softmax_scale too,
  // which is 1 and not 1/sqrt(head_dim_qk) unless set. Dtypes are equal in all groups of a model.
  AttentionSpec spec = {};
};

struct ModelSpec {
  std::string name = {};  // [A-Za-z0-9._-]{1,128}
  uint32_t num_layers = 0;
  uint32_t page_size = 0;                     // tokens per page; 0: the engine's choice
  std::vector<LayerGroup> layer_groups = {};  // every layer in exactly one
  // Opaque to the engine; a name stands for one tag: weights revision, adapter, rotary setup.
  std::string content_tag = {};
};

struct ModelInfo {
  ModelSpec spec = {};  // every default filled in
  uint64_t kv_bytes_per_token = 0;
  bool already_declared = false;
};

}  // namespace attn::engine
