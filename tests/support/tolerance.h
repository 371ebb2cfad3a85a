// How far an answer may be from the reference: three times the error of a naive implementation in
// the same types, plus 1e-5 of the size of the values. What is not finite must agree exactly.
#pragma once

#include <vector>

#include "attention/reference/reference_attention.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/paged_run.h"

namespace attn::test {

// max |x - reference| ≤ 3 · naive_error + 1e-5 · (1 + reference_absmax)
double ToleranceOf(double naive_error, double reference_absmax);

struct Expected {
  reference::Result result;
  double out_tolerance = 0;
  double lse_tolerance = 0;
};

// The reference's answer to one item, and the tolerance by the error of naive runs.
Expected ExpectedOf(const Problem& problem, size_t item);

// True if `got` has no poison left, NaN and infinities in the same places as the reference, exact
// zeros in rows that see nothing, and all else within tolerance. Says where it is worst otherwise.
::testing::AssertionResult IsWithinTolerance(const Problem& problem, size_t item,
                                             const Expected& expected, const ItemOutput& got);

}  // namespace attn::test
