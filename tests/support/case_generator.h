// Draws cases from the axes along which backends break, biased to the edges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/attention_case.h"

namespace attn::test {

// Changes a spec to one that a backend supports.
using NarrowSpec = void (*)(AttentionSpec&);
inline void KeepSpec(AttentionSpec&) {}

// The same case for the same seed, of specs as `narrow` leaves them.
AttentionCase RandomCase(uint64_t seed, NarrowSpec narrow = KeepSpec);

// What a case exercises, as "axis=value": "group=3", "kv_len=page+1", "window=left".
std::vector<std::string> FeaturesOf(const AttentionCase& attention_case);

struct PairwiseCases {
  std::vector<AttentionCase> cases;
  int64_t pairs_covered = 0;  // pairs of features that stand together in some case
};

// Draws `num_candidates` cases from seeds `first_seed` and up and keeps those that show a pair of
// features no case before has shown.
PairwiseCases SelectPairwise(uint64_t first_seed, int num_candidates, NarrowSpec narrow = KeepSpec);

}  // namespace attn::test
