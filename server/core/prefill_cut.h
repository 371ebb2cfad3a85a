// Where a long item is cut: which of its remaining new keys, rows and heads fit into a given cost.
// Pure.
#pragma once

#include <optional>

#include "server/core/attend_work.h"

namespace attn::server {

// How far the item's new keys are written next, so that it costs at most `units`: up to an absolute
// position that is a multiple of costs.cut_rows(), or up to the last key. work.next_key if not even
// that fits, unless `at_least_one`.
uint32_t NextKeyEnd(const AttendWork& work, const CostModel& costs, double units,
                    bool at_least_one);

// The next chunk of `work`, as much as costs at most `units`. Cuts lie at rows whose absolute
// position is a multiple of costs.cut_rows(), and inside such a block of rows between KV heads.
// Nothing if not even one head of one block fits, unless `at_least_one`. Items whose rows are
// computed as decode are one chunk. REQUIRES: rows are left.
std::optional<DueChunk> NextChunk(AttendWork& work, const CostModel& costs, double units,
                                  bool at_least_one);

}  // namespace attn::server
