// A step that holds decodes and a prefill chunk: both at once on shares of the device, against one
// after the other.
#pragma once

#include "tools/bench/gpu/device_timing.h"

namespace attn::bench {

void BenchMixed(DeviceTimer& timer);

}  // namespace attn::bench
