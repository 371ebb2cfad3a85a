// Lifecycle of sequences: requests. Each call takes many sequences and answers each on its own, so
// that one bad item fails none of its neighbours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/base/clock.h"
#include "attn/base/ids.h"

namespace attn::engine {

enum class Priority : uint8_t { kBatch = 1, kNormal = 2, kInteractive = 3 };

struct OpenRequest {
  std::string model = {};
  // The lease belongs to the owner. Any call on a sequence renews that of its owner.
  std::string owner = {};
  uint32_t num_sequences = 1;
  // Sequences of an owner close when nobody has renewed for so long. kNever: they stay until Close.
  Nanos lease = kNever;
  Priority priority = Priority::kNormal;
};

struct ForkItem {
  SequenceId parent = {};
  std::optional<uint32_t> at_len = {};  // absent: the parent's committed length
  uint32_t num_children = 1;
};

struct TruncateItem {
  SequenceId sequence = {};
  uint32_t len = 0;  // layers longer than this are cut to it
};

}  // namespace attn::engine
