// A copy that the owner of the bytes has to perform: the cache knows pages, not what is in them.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/base/ids.h"

namespace attn::kvcache {

// Copy-on-write of one page. A page with nothing to copy makes no move. Moves must be performed in
// the order in which they were returned, before anything is appended for the reservations they came
// with, and whether or not those reservations are committed.
struct PageMove {
  ModelSlot model;
  uint32_t group = 0;  // index in CacheModel::groups
  PageId source = kNoPage;
  PageId target = kNoPage;
  // For each layer of the group, in the group's order: copy slots [0, slots_per_layer[i]).
  std::vector<uint32_t> slots_per_layer;
};

}  // namespace attn::kvcache
