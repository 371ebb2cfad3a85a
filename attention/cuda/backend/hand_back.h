// Results of a step into the memory of those who asked.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "attention/cuda/backend/bulk_copy.h"
#include "attention/cuda/backend/step_builder.h"

namespace attn::cuda {

// `outputs` are the step's, on the host. Heads that a piece does not hold stay untouched.
void HandBack(absl::Span<const RowResult> results, const uint8_t* outputs, BulkCopier* copier);

}  // namespace attn::cuda
