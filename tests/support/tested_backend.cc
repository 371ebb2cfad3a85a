#include "tests/support/tested_backend.h"

#include <cmath>

#include "tests/support/expect_reference.h"

namespace attn::test {

AttentionSpec NarrowedSpec(uint32_t num_q_heads, uint32_t num_kv_heads, uint32_t head_dim,
                           DType dtype) {
  AttentionSpec spec = SpecOf(num_q_heads, num_kv_heads, head_dim, dtype);
  Narrow(spec);
  spec.score.softmax_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim_qk));
  return spec;
}

}  // namespace attn::test
