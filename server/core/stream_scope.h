// A stream as the engine knows it: its aliases and the sequences that close with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/ids.h"
#include "server/core/call.h"

namespace attn::server {

// Made by the rpc layer, one per stream, shared by the stream's calls. All members belong to the
// engine thread.
class StreamScope {
 public:
  struct Alias {
    SequenceId sequence;
    // Set when the Open or Fork that was to define the alias failed: items get SKIPPED.
    bool failed = false;
  };
  absl::flat_hash_map<uint32_t, Alias> aliases;
  std::vector<SequenceId> close_with_stream;
  // Sizes above which what has been closed meanwhile is thrown out of the two.
  size_t max_aliases = 1024;
  size_t max_close_with_stream = 64;
  uint64_t last_launch = 0;  // the last launch with an item of this stream
};

// The sequence that `ref` names in a call of `stream` (null for unary calls). UNKNOWN_SEQUENCE for
// an alias that was never defined, SKIPPED if the call that was to define it failed. Ids are not
// looked at. `field` and `index` say where the reference stands.
absl::StatusOr<SequenceId> Resolve(const StreamScope* stream, SequenceRef ref,
                                   absl::string_view field, size_t index);

// What an item gets whose sequence was to come from a call that failed.
absl::Status SkippedError(absl::string_view field, size_t index);

}  // namespace attn::server
