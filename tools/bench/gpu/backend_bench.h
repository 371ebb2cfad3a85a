// The whole way of a launch of the CUDA backend: from the caller's memory to the device and back.
#pragma once

#include "tools/bench/gpu/device_timing.h"

namespace attn::bench {

void BenchBackend(DeviceTimer& timer);

}  // namespace attn::bench
