// Attention as the definition says it, in double, over plain vectors: what the server's answers are
// compared with. One model: 4 query heads on 2 KV heads, head dim 16; layer 0 causal and plain,
// layer 1 with a window of 5 keys behind the row and one sink logit per head.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "tests/support/random.h"

namespace attn::test {

inline constexpr uint32_t kQHeads = 4;
inline constexpr uint32_t kKvHeads = 2;
inline constexpr uint32_t kHeadDim = 16;
inline constexpr uint32_t kWindowLeft = 5;
inline constexpr uint32_t kLayers = 2;

v1::ModelSpec TinySpec(const std::string& name = "tiny");

using Rows = std::vector<float>;  // [rows, heads, kHeadDim]

Rows RandomRows(Random& random, int64_t rows, uint32_t heads);

// Keys and values of one layer.
struct PlainLayer {
  Rows k;
  Rows v;
  int64_t len() const { return static_cast<int64_t>(k.size()) / (kKvHeads * kHeadDim); }
  void Append(const Rows& new_k, const Rows& new_v);
  void Truncate(int64_t len);
};

struct PlainQuery {
  uint32_t layer = 0;
  int64_t q_start = 0;
  int64_t kv_end = 0;
  bool causal = true;
  bool sinks = true;
};

// out [rows, kQHeads, kHeadDim]; lse [rows, kQHeads] if given.
Rows PlainAttend(const PlainLayer& kv, const Rows& q, const PlainQuery& query,
                 std::vector<float>* lse = nullptr);

}  // namespace attn::test
