// Golden cases as problems for a backend: packed, dense and paged files alike become one item per
// sequence, with the answer that the file holds and the tolerance that it allows.
#pragma once

#include <string>
#include <vector>

#include "attn/base/dtype.h"
#include "tests/support/attention_case.h"
#include "tests/support/golden_file.h"
#include "tests/support/tolerance.h"

namespace attn::test {

// The first field by which a file needs more than the forward pass offers, empty if none: a file
// with such a field is refused, the others must be computed.
std::string MissingField(const GoldenFile& file);

struct GoldenProblem {
  Problem problem;
  std::vector<Expected> expected;  // [items]
  bool has_page_size = false;      // else any page size will do
};

// The case with activations, cache and output of `dtype`. REQUIRES: MissingField(file).empty().
GoldenProblem MakeGoldenProblem(const GoldenFile& file, DType dtype);

}  // namespace attn::test
