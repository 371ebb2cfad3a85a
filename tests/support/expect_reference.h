// Short forms for tests that name their case by hand.
#pragma once

#include <utility>
#include <vector>

#include "attn/attention/backend.h"
#include "tests/support/attention_case.h"
#include "tests/support/paged_run.h"

namespace attn::test {

// A CPU backend with so many threads; made once, lives for ever. One thread at a time.
Backend& CpuBackendOf(int num_threads);

// Heads, dims and dtype of a spec; scale 1/sqrt(head_dim), page 16, nothing else.
AttentionSpec SpecOf(uint32_t num_q_heads, uint32_t num_kv_heads, uint32_t head_dim,
                     DType dtype = DType::kFloat32);

struct Lengths {
  int32_t q_len = 0;
  int32_t kv_len = 0;
};

// Causal items whose last row sees the last key; out dtype is the activation dtype.
AttentionCase BottomRightCase(const AttentionSpec& spec, const std::vector<Lengths>& items,
                              uint64_t seed);

// Every item is within tolerance of the reference; fails the running test otherwise.
void ExpectReference(Backend& backend, const Problem& problem, const Layout& layout = {});
// On two threads, and in both row classes if all items have at most 16 rows.
void ExpectReference(const Problem& problem);
void ExpectReference(const AttentionCase& attention_case);

// Sets element `index` of a tensor of the problem's activation dtype.
void SetElement(const Problem& problem, std::vector<char>& tensor, size_t index, float value);
// Sets all elements.
void FillTensor(const Problem& problem, std::vector<char>& tensor, float value);
// Sets the vectors of token `token`, head `head` of a [tokens, num_heads, dim] tensor.
void FillVector(const Problem& problem, std::vector<char>& tensor, uint32_t num_heads, uint32_t dim,
                int64_t token, uint32_t head, float value);

}  // namespace attn::test
