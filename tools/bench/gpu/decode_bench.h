// Decode on declared axes.
#pragma once

#include "tools/bench/gpu/device_timing.h"

namespace attn::bench {

// Prints cold and rotating times, bandwidths, and the host's time to plan and launch.
void BenchDecode(DeviceTimer& timer, bool is_quick);

}  // namespace attn::bench
