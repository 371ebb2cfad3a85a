// The geometry of a model, as a client declares it. No weights live on the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/base/dtype.h"

namespace attn::client {

// Keys p-left .. p+right of a row at position p stay visible, besides causality. Absent: no limit
// on that side. A "sliding window of W tokens" that counts the row's own token is left = W-1.
struct Window {
  std::optional<uint32_t> left = {};
  std::optional<uint32_t> right = {};
};

// Layers with equal geometry and mask.
struct LayerGroup {
  std::vector<uint32_t> layers = {};
  uint32_t num_q_heads = 0;
  uint32_t num_kv_heads = 0;  // divides num_q_heads; query head h reads KV head h / (q/kv)
  uint32_t head_dim_qk = 0;
  uint32_t head_dim_v = 0;  // 0: head_dim_qk
  // Absent: 1/sqrt(head_dim_qk).
  std::optional<float> softmax_scale = {};
  // 0: none; else logits become cap * tanh(logit / cap), before masking.
  float logit_soft_cap = 0;
  Window window = {};
  // Learned logits in the denominator: [layers.size(), num_q_heads, sink_logits_per_head].
  uint32_t sink_logits_per_head = 0;
  std::vector<float> sink_logits = {};
  // Tokens that may be rewound behind a window.
  uint32_t window_slack = 0;
};

struct ModelSpec {
  std::string name = {};  // [A-Za-z0-9._-]{1,128}
  // Dtype of q, k, v as sent, and of out unless the request asks for another.
  DType activation_dtype = DType::kFloat32;
  std::optional<DType> kv_dtype = {};  // absent: activation_dtype
  uint32_t page_size = 0;              // tokens per page; 0: the server's choice
  uint32_t num_layers = 0;
  std::vector<LayerGroup> layer_groups = {};  // every layer in exactly one
  // Opaque to the server, part of the fingerprint: weights revision, adapter, rotary setup.
  std::string content_tag = {};
};

struct ModelInfo {
  ModelSpec spec;                // every default filled in
  std::string fingerprint = {};  // 32 bytes, equal on all servers for equal geometry
  uint64_t kv_bytes_per_token = 0;
  bool already_declared = false;  // set by DeclareModel only
};

}  // namespace attn::client
