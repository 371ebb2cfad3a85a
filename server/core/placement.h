// Due chunks get what they need to run: outputs, and for items that append, pages.
#pragma once

#include <vector>

#include "server/core/attend_line.h"
#include "server/core/attend_work.h"

namespace attn::server {

struct Placed {
  DueChunk chunk;
  size_t launch = 0;  // of the step, filled by Staging

  // A replay has nothing to write.
  bool writes() const { return chunk.has_keys() && !chunk.work->reservation.replayed(); }
};

// Engine thread only.
class Placement {
 public:
  Placement(kvcache::KvCache* cache, AttendLine* line) : cache_(cache), line_(line) {}

  // Refused and late items end here, at once. The list is valid until the next call.
  std::vector<Placed>& Place(const std::vector<DueChunk>& due, Nanos now);
  // Calls with a chunk in the last list.
  size_t num_calls() const { return num_calls_; }

 private:
  absl::Status Reserve(AttendWork& work);

  kvcache::KvCache* cache_;
  AttendLine* line_;
  std::vector<Placed> placed_;
  uint64_t num_steps_ = 0;
  size_t num_calls_ = 0;
};

}  // namespace attn::server
