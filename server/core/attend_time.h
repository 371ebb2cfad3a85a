// What a call is expected to need of the device, before it is accepted.
#pragma once

#include "server/core/backlog.h"
#include "server/core/call.h"
#include "server/core/cost_model.h"

namespace attn::server {

// Any thread. By what the items say of themselves: expected_len stands for the length that only
// the engine knows, so rows without new keys count as if they saw none. Items that are refused
// already take no time.
CallTime TimeOf(const AttendCall& call, const CostModel& costs);

}  // namespace attn::server
