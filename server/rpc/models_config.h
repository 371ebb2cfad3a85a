// The models file that a server reads at start: attn.v1.ModelsConfig in protobuf text format.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"

namespace attn::server {

// INVALID naming `path` with line and column for text that does not parse.
absl::StatusOr<std::vector<v1::ModelSpec>> ReadModelsFile(const std::string& path);

}  // namespace attn::server
