// Judges the results of a case on rows drawn at random, against sums in double precision written
// from docs/numerics.md.
#pragma once

#include <string>
#include <vector>

#include "tests/attention/cuda/device_case.h"

namespace attn::cuda {

// Empty if all sampled rows are within three times the error of a naive computation in the same
// types (plus 1e-5, scaled) and no element of any row is NaN; else what is wrong where.
std::string Judge(const CaseOnDevice& c, const std::vector<EntryOutputs>& outputs,
                  int rows_per_entry);

}  // namespace attn::cuda
