// attn.v1.ModelSpec to ModelDefinition: every rule of the spec, every default filled in.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "attn/attention/attention_spec.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"
#include "server/rpc/limits.h"

namespace attn::server {

// The page size of models that leave the choice to the server.
inline constexpr uint32_t kDefaultPageSize = 16;

// Whether the backend computes a spec: Engine::Supports. Any thread.
using SupportsSpec = std::function<absl::Status(const AttentionSpec&)>;

// `path` is put before the fields in messages: "spec", or "models[2]" for a config file.
absl::StatusOr<ModelDefinition> DecodeModelSpec(v1::ModelSpec spec, const WireLimits& limits,
                                                const ModelRegistry& registry,
                                                const SupportsSpec& supports,
                                                absl::string_view path);

void EncodeModelInfo(const Model& model, v1::ModelInfo* out);

}  // namespace attn::server
