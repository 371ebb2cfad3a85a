// Prefill on declared axes.
#pragma once

#include "tools/bench/gpu/device_timing.h"

namespace attn::bench {

// Prints cold, sustained and busy figures. `is_quick`: few shapes, for a first look.
void BenchPrefill(DeviceTimer& timer, bool is_quick);

}  // namespace attn::bench
