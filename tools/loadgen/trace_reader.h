// Reads public traces of inference requests. Nothing but arrival and lengths is taken from them.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/base/clock.h"

namespace attn::loadgen {

struct TraceRequest {
  Nanos arrival = 0;  // from the first request of the trace
  uint32_t context_len = 0;
  uint32_t generated_len = 0;
};

// Azure: a header "TIMESTAMP,ContextTokens,GeneratedTokens", then lines such as
// "2023-11-16 18:15:46.6805900,374,44".
absl::StatusOr<std::vector<TraceRequest>> ReadAzureTrace(std::istream& in);

// Mooncake: one JSON object a line with timestamp (ms), input_length, output_length.
absl::StatusOr<std::vector<TraceRequest>> ReadMooncakeTrace(std::istream& in);

// By the file's name: .csv or .jsonl. Errors name file and line. Arrivals are sorted.
absl::StatusOr<std::vector<TraceRequest>> ReadTraceFile(const std::string& path);

}  // namespace attn::loadgen
