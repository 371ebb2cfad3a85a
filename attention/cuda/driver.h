// Functions of the driver, found at run time so that nothing links against it.
#pragma once

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attn::cuda {

// The function with this name as CUDA `version` (12000: 12.0) declares it.
absl::StatusOr<void*> FindDriverFunction(const char* name, unsigned version);

template <typename Function>
absl::Status FindDriverFunction(const char* name, unsigned version, Function* function) {
  const absl::StatusOr<void*> found = FindDriverFunction(name, version);
  if (found.ok()) *function = reinterpret_cast<Function>(*found);
  return found.status();
}

// OK, or NO_PAGES for exhausted memory, INTERNAL for other errors.
absl::Status StatusOfDriver(CUresult result, absl::string_view call);

}  // namespace attn::cuda
