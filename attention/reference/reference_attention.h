// What attention is, in double precision, one row at a time and with no tiling: the judge of every
// backend. Written from the definition alone; of the computing code it shares only AttentionSpec.
//
// Tensors are plain and contiguous and hold the activation dtype, as a client would send them.
// Keys and values are rounded to the cache dtype before use, as an append would do.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/attention/attention_spec.h"

namespace attn::reference {

// One query row of one head.
struct Row {
  uint32_t layer = 0;   // index within the layer group
  uint32_t q_head = 0;  // 0 .. num_q_heads - 1
  int64_t position = 0;
  int64_t kv_len = 0;  // the row sees keys below this position at most
  bool causal = true;
  bool use_sinks = true;
};

// True if a row at `position` may see key `key`, 0 <= key < kv_len.
bool IsVisible(const ScoreSpec& score, bool causal, int64_t position, int64_t key);

// The natural log of the row's denominator; -inf if the row sees no key and no sink.
//   q    [head_dim_qk], of this row and head
//   k    [kv_len, num_kv_heads, head_dim_qk]
//   v    [kv_len, num_kv_heads, head_dim_v]
//   out  [head_dim_v], written
// Costs O(kv_len) and decodes only the keys that the row sees.
double ReferenceRow(const AttentionSpec& spec, const Row& row, const void* q, const void* k,
                    const void* v, double* out);

// The query rows of one item.
struct Item {
  int64_t q_start = 0;
  int32_t q_len = 0;
  int32_t kv_len = 0;
  uint32_t layer = 0;
  bool causal = true;
  bool use_sinks = true;
};

struct Result {
  std::vector<double> out;  // [q_len, num_q_heads, head_dim_v]
  std::vector<double> lse;  // [q_len, num_q_heads]
};

// q [q_len, num_q_heads, head_dim_qk]; k and v as in ReferenceRow.
Result Attend(const AttentionSpec& spec, const Item& item, const void* q, const void* k,
              const void* v);

}  // namespace attn::reference
