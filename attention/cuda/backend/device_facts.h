// What is known of the device before anything runs on it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace attn::cuda {

struct DeviceFacts {
  std::string name;
  int num_sms = 0;
};

// UNSUPPORTED naming the device where the kernels cannot run: none there, or not a Hopper GPU.
absl::StatusOr<DeviceFacts> FactsOf(int device);

}  // namespace attn::cuda
