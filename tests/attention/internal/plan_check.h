// What must hold for every plan, however its work was cut.
#pragma once

#include <string>
#include <vector>

#include "attention/plan/plan.h"

namespace attn::plan {

// Empty if the tasks do every row and every leaf of every head of `entries` exactly once, keep
// within `limits`, and the splits are runs at aligned places whose partials fill the workspace
// without gap or overlap; else what is wrong.
std::string FaultOf(const Plan& plan, const AttentionSpec& spec,
                    const std::vector<AttendEntry>& entries, const Limits& limits);

}  // namespace attn::plan
