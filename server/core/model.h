// A declared model as the server works with it: checked, defaults filled in, immutable.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/attention/attention_spec.h"
#include "attn/base/ids.h"
#include "attn/kvcache/kv_cache.h"

namespace attn::server {

struct ModelGroup {
  std::vector<uint32_t> layers;  // layer numbers of the model, as declared
  AttentionSpec spec;            // layer i of the spec is layers[i]
  uint32_t window_slack = 0;     // stored; nothing behind a window is given up yet
};

// What DeclareModel asks for. `source` is the request's ModelSpec with every default filled in,
// serialized by the rpc layer, which alone can read it; the core only hands it back.
struct ModelDefinition {
  std::string name;
  std::string content_tag;
  uint32_t num_layers = 0;
  uint32_t page_size = 0;  // the server's choice filled in
  std::vector<ModelGroup> groups;
  std::string fingerprint;  // 32 bytes
  std::string source;
};

struct Model {
  ModelDefinition definition;
  ModelSlot slot;
  uint64_t kv_bytes_per_token = 0;       // all layers
  std::vector<uint32_t> group_of_layer;  // [num_layers]
  std::vector<uint32_t> index_in_group;  // [num_layers]

  const ModelGroup& GroupOf(uint32_t layer) const {
    return definition.groups[group_of_layer[layer]];
  }
};

using ModelPtr = std::shared_ptr<const Model>;

}  // namespace attn::server
