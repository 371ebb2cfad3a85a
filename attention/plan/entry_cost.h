// What an entry costs whatever computes it: visible pairs and bytes of keys and values. Pure.
#pragma once

#include "attn/attention/attention_spec.h"
#include "attn/attention/backend.h"
#include "attn/attention/batch.h"

namespace attn::plan {

Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry);

}  // namespace attn::plan
