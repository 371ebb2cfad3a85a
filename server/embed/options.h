// The engine's options as an embedder gives them: their ranges, and what the core makes of them.
#pragma once

#include "absl/status/status.h"
#include "attn/attention/backend.h"
#include "attn/engine/engine.h"
#include "server/core/engine.h"
#include "server/core/wire_limits.h"

namespace attn::engine {

// INVALID names the option at fault.
absl::Status CheckOptions(const EngineOptions& options, const Backend& backend);
server::EngineOptions CoreOptionsOf(const EngineOptions& options);
// The limits of calls. Those of items and rows are the wire's.
server::WireLimits LimitsOf(const EngineOptions& options);

}  // namespace attn::engine
