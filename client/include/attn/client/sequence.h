// Lifecycle of sequences: requests and their outcomes. Each call takes many sequences and answers
// each on its own, so that one bad item fails none of its neighbours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/base/ids.h"

namespace attn::client {

enum class Priority : uint8_t { kDefault = 0, kBatch = 1, kNormal = 2, kInteractive = 3 };

struct OpenRequest {
  std::string model = {};
  // The lease belongs to the owner; sequences of one engine share one. Any call of an owner renews.
  std::string owner = {};
  uint32_t num_sequences = 1;
  uint32_t lease_ms = 0;      // 0: server default
  uint32_t max_len_hint = 0;  // a hint, nothing is reserved
  Priority priority = Priority::kDefault;
  std::string model_fingerprint = {};  // if not empty: must equal the model's
  // Stream::Open only: these sequences close when the stream ends, however it ends.
  bool close_with_stream = false;
};

struct OpenResult {
  uint32_t lease_ms = 0;                                   // as granted
  std::vector<absl::StatusOr<SequenceId>> sequences = {};  // one per sequence asked for
};

struct ForkItem {
  SequenceId parent = {};
  std::optional<uint32_t> at_len = {};  // absent: the parent's committed length
  uint32_t num_children = 1;
};

// Per item its children, or why it failed.
using ForkResult = std::vector<absl::StatusOr<std::vector<SequenceId>>>;

// targets[i] becomes a copy of sources[i] as it was before the call; all or nothing.
struct ReorderRequest {
  std::vector<SequenceId> targets = {};
  std::vector<SequenceId> sources = {};
};

struct TruncateItem {
  SequenceId sequence = {};
  uint32_t len = 0;  // layers longer than this are cut to it
};

// Committed length per item.
using TruncateResult = std::vector<absl::StatusOr<uint32_t>>;

struct SequenceInfo {
  SequenceId sequence = {};
  std::string model = {};
  std::string owner = {};
  uint32_t committed_len = 0;             // least length of its layers
  std::vector<uint32_t> layer_lens = {};  // one per layer
  uint64_t num_pages = 0;
  uint64_t num_shared_pages = 0;
  uint32_t lease_remaining_ms = 0;
};

struct Renewal {
  uint32_t lease_ms = 0;
  uint32_t num_sequences = 0;
  std::vector<SequenceId> lost = {};  // lost since the last renewal
};

}  // namespace attn::client
