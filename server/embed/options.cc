#include "server/embed/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::engine {

absl::Status CheckOptions(const EngineOptions& options, const Backend& backend) {
  const int64_t longest = std::min<int64_t>(backend.max_kv_len(), int64_t{1} << 30);
  const struct {
    absl::string_view name;
    int64_t value;
    int64_t min;
    int64_t max;
  } ranges[] = {
      {"kv_bytes", options.kv_bytes, 1, int64_t{1} << 50},
      {"max_sequences", options.max_sequences, 1, 1 << 24},
      {"max_sequence_len", options.max_sequence_len, 1, longest},
      {"remembered_appends", options.remembered_appends, 1, 1024},
      {"max_items", options.max_items, 1, 1 << 24},
      {"chunk_time", options.chunk_time, 100 * kMicrosecond, 10 * kSecond},
      {"max_batch_wait", options.max_batch_wait, 0, kSecond},
      {"max_launch_items", options.max_launch_items, 1, 1 << 20},
      {"drain_grace", options.drain_grace, 0, 3600 * kSecond},
  };
  for (const auto& range : ranges) {
    if (range.value >= range.min && range.value <= range.max) continue;
    return MakeError(Reason::kInvalid, range.name,
                     absl::StrCat("got ", range.value, ", want ", range.min, " to ", range.max));
  }
  return absl::OkStatus();
}

server::EngineOptions CoreOptionsOf(const EngineOptions& options) {
  server::EngineOptions core;
  core.kv_bytes = options.kv_bytes;
  core.max_sequences = options.max_sequences;
  core.max_sequence_len = options.max_sequence_len;
  core.remembered_appends = options.remembered_appends;
  core.queue.max_items = options.max_items;
  core.chunk_time = options.chunk_time;
  core.max_batch_wait = options.max_batch_wait;
  core.max_launch_items = options.max_launch_items;
  core.drain_grace = options.drain_grace;
  return core;
}

server::WireLimits LimitsOf(const EngineOptions& options) {
  server::WireLimits limits;
  limits.max_sequence_len = options.max_sequence_len;
  limits.max_open_sequences = options.max_sequences;
  limits.remembered_appends = options.remembered_appends;
  return limits;
}

}  // namespace attn::engine
