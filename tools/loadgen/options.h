// Everything a run can be told, with defaults, and the command line that tells it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "attn/base/dtype.h"

namespace attn::loadgen {

struct Options {
  std::string target = "127.0.0.1:50051";

  // Load: a trace file, or without one a Poisson process.
  std::string trace;            // .csv: Azure; .jsonl: Mooncake
  double rate = 4;              // Poisson: mean requests per second
  uint32_t context = 512;       // Poisson: mean prompt tokens (exponential, at least 1)
  uint32_t generated = 64;      // Poisson: mean generated tokens (exponential, at least 1)
  uint32_t max_requests = 200;  // 0: the whole trace
  double time_scale = 1;        // arrival times are multiplied by this; 0.5: twice as fast
  double length_scale = 1;      // context and generated lengths are multiplied by this
  uint32_t max_context = 0;     // longer prompts are cut to this; 0: never
  uint64_t seed = 1;

  // Model. The last `windowed_layers` layers form a group with a window and sinks.
  uint32_t layers = 4;
  uint32_t q_heads = 8;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 64;
  DType dtype = DType::kBFloat16;
  uint32_t page_size = 0;  // 0: the server's choice
  uint32_t windowed_layers = 2;
  uint32_t window = 256;  // tokens, the row's own counted
  uint32_t sinks = 1;     // sink logits per head in the windowed group
  double soft_cap = 0;

  // The engine that is imitated.
  uint32_t clients = 2;          // engines, each with a connection of its own
  uint32_t max_active = 64;      // sequences at once per engine
  uint32_t prefill_chunk = 512;  // prompt tokens per step and engine

  // Verdicts.
  double verify = 0;            // share of all rows to recompute
  bool inject_bitflip = false;  // for tests of the verification itself
  double ttft_limit_ms = 2000;  // goodput counts requests within both limits
  double step_limit_ms = 200;   // mean time per output token after the first
  bool allow_late = false;      // a run with too many delayed sends is not an error
  std::string json;             // file for the report
};

// `flags` without the program's name. INVALID naming the flag.
absl::StatusOr<Options> ParseOptions(int num_flags, const char* const* flags);
// All flags, one a line, with their defaults.
std::string Usage();

}  // namespace attn::loadgen
