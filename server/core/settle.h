// The end of a step: appends are committed or rolled back, finished items are handed in.
#pragma once

#include <span>
#include <vector>

#include "server/core/attend_line.h"
#include "server/core/placement.h"
#include "server/core/staging.h"
#include "server/core/stats.h"

namespace attn::server {

// REQUIRES: every launch has its outcome. A failed one fails its items and nobody else's; what it
// was to write is rolled back, the page copies it was to do stay to be done.
void Settle(std::vector<Placed>& placed, std::span<Launch> launches, AttendLine& line,
            EngineStats& stats);

}  // namespace attn::server
