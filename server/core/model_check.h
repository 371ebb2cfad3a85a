// The rules of a model's definition that can be told without the device, and the device's own
// refusal in the words of the one who declares the model.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attn/attention/attention_spec.h"
#include "server/core/model.h"
#include "server/core/wire_limits.h"

namespace attn::server {

// The page size of models that leave the choice to the server.
inline constexpr uint32_t kDefaultPageSize = 16;

// Whether the backend computes a spec: Engine::Supports. Any thread.
using SupportsSpec = std::function<absl::Status(const AttentionSpec&)>;

// INVALID, or whatever `supports` says, naming the field. `path` is put before the fields in
// messages: "spec", or "models[2]" for a config file.
// REQUIRES: defaults are filled in (a page size of 0 that was asked for, too), and every group's
// num_layers, page_size and dtypes.
absl::Status CheckDefinition(const ModelDefinition& definition, const WireLimits& limits,
                             const SupportsSpec& supports, absl::string_view path);

}  // namespace attn::server
