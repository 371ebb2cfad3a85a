// The numbers of q, k and v: a function of (seed, sequence, layer, position, tensor), so that any
// row can be made again for the verification instead of being stored.
//
// Each value is exact in the dtype: a random sign and mantissa under one of four exponents, so its
// magnitude lies in [1/8, 2). Logits then
// spread by about 0.8, neither flat nor one-hot.
#pragma once

#include <cstdint>

#include "attn/base/dtype.h"

namespace attn::loadgen {

enum class TensorKind : uint64_t { kQuery = 1, kKey = 2, kValue = 3 };

// Which row: one token of one sequence in one layer.
struct RowId {
  uint64_t sequence = 0;  // number of the request in the plan
  uint32_t layer = 0;
  uint32_t position = 0;
};

class TensorSource {
 public:
  TensorSource(uint64_t seed, DType dtype) : seed_(seed), dtype_(dtype) {}

  // Writes `elements` values of the row, in the dtype, to `target` (any address).
  void Fill(const RowId& row, TensorKind kind, size_t elements, void* target) const;
  // Whether the row belongs to a random `share` of all rows.
  bool IsSampled(const RowId& row, double share) const;
  DType dtype() const { return dtype_; }

 private:
  const uint64_t seed_;
  const DType dtype_;
};

}  // namespace attn::loadgen
