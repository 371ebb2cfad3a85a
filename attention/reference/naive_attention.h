// How wrong a plain implementation without tiles may be at a given precision: inputs in their
// dtypes, float logits and softmax, weights rounded to the cache dtype for the product with V, the
// output rounded once. Its distance from the reference is the unit in which errors are judged.
#pragma once

#include "attention/reference/reference_attention.h"
#include "attn/base/dtype.h"

namespace attn::reference {

// Order in which a row's sums run over their terms. The order is free, so the error of a naive
// implementation is the larger one of both.
enum class SumOrder { kForward, kBackward };

// Arguments as for Attend; the results hold values of `out_dtype` and of float.
Result AttendNaively(const AttentionSpec& spec, const Item& item, DType out_dtype, SumOrder order,
                     const void* q, const void* k, const void* v);

}  // namespace attn::reference
