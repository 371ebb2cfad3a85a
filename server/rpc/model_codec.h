// attn.v1.ModelSpec to ModelDefinition: every rule of the spec, every default filled in.
#pragma once

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/core/model_check.h"
#include "server/core/model_registry.h"
#include "server/core/wire_limits.h"

namespace attn::server {

// `path` is put before the fields in messages: "spec", or "models[2]" for a config file.
absl::StatusOr<ModelDefinition> DecodeModelSpec(v1::ModelSpec spec, const WireLimits& limits,
                                                const ModelRegistry& registry,
                                                const SupportsSpec& supports,
                                                absl::string_view path);

void EncodeModelInfo(const Model& model, v1::ModelInfo* out);

}  // namespace attn::server
