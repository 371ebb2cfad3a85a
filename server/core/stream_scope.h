// A stream as the engine knows it: its aliases and the sequences that close with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "attn/base/ids.h"

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
};

}  // namespace attn::server
