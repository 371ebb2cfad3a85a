#include "attention/reference/naive_attention.h"

#include <cmath>
#include <limits>

namespace attn::reference {
namespace {

std::vector<float> DecodeFloat(DType dtype, DType stored_as, const void* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = RoundTo(stored_as, LoadAsFloat(dtype, data, i));
  }
  return values;
}

struct Operands {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
};

// Calls f(i) for i in [0, n) in the wanted order.
template <typename F>
void InOrder(SumOrder order, int64_t n, const F& f) {
  for (int64_t i = 0; i < n; ++i) f(order == SumOrder::kForward ? i : n - 1 - i);
}

float NaiveLogit(const ScoreSpec& score, SumOrder order, const float* q, const float* k,
                 uint32_t dim) {
  float dot = 0;
  InOrder(order, dim, [&](int64_t d) { dot += q[d] * k[d]; });
  const float scaled = score.softmax_scale * dot;
  if (score.logit_soft_cap == 0.0f) return scaled;
  return score.logit_soft_cap * std::tanh(scaled / score.logit_soft_cap);
}

float NaiveRow(const AttentionSpec& spec, const Row& row, SumOrder order, DType out_dtype,
               const float* q, const Operands& operands, double* out) {
  const ScoreSpec& score = spec.score;
  const uint32_t kv_head = row.q_head / spec.group_size();
  std::vector<float> logits(static_cast<size_t>(row.kv_len),
                            -std::numeric_limits<float>::infinity());
  float maximum = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < row.kv_len; ++j) {
    if (!IsVisible(score, row.causal, row.position, j)) continue;
    const int64_t key = (j * spec.num_kv_heads + kv_head) * spec.head_dim_qk;
    logits[j] = NaiveLogit(score, order, q, operands.k.data() + key, spec.head_dim_qk);
    maximum = std::max(maximum, logits[j]);
  }
  const uint32_t num_sinks = row.use_sinks ? score.sink_logits_per_head : 0;
  const size_t first_sink =
      (size_t{row.layer} * spec.num_q_heads + row.q_head) * score.sink_logits_per_head;
  for (uint32_t i = 0; i < num_sinks; ++i) {
    maximum = std::max(maximum, score.sink_logits[first_sink + i]);
  }
  for (uint32_t d = 0; d < spec.head_dim_v; ++d) out[d] = 0;
  if (maximum == -std::numeric_limits<float>::infinity()) return maximum;

  float denominator = 0;
  InOrder(order, row.kv_len, [&](int64_t j) { denominator += std::exp(logits[j] - maximum); });
  for (uint32_t i = 0; i < num_sinks; ++i) {
    denominator += std::exp(score.sink_logits[first_sink + i] - maximum);
  }
  std::vector<float> sums(spec.head_dim_v, 0.0f);
  InOrder(order, row.kv_len, [&](int64_t j) {
    const float weight = RoundTo(spec.kv_dtype, std::exp(logits[j] - maximum) / denominator);
    if (weight == 0.0f) return;
    const int64_t value = (j * spec.num_kv_heads + kv_head) * spec.head_dim_v;
    for (uint32_t d = 0; d < spec.head_dim_v; ++d) sums[d] += weight * operands.v[value + d];
  });
  for (uint32_t d = 0; d < spec.head_dim_v; ++d) out[d] = RoundTo(out_dtype, sums[d]);
  return maximum + std::log(denominator);
}

}  // namespace

Result AttendNaively(const AttentionSpec& spec, const Item& item, DType out_dtype, SumOrder order,
                     const void* q, const void* k, const void* v) {
  const int64_t num_rows = int64_t{item.q_len} * spec.num_q_heads;
  const int64_t num_keys = int64_t{item.kv_len} * spec.num_kv_heads;
  const DType given = spec.activation_dtype;
  const Operands operands{DecodeFloat(given, given, q, num_rows * spec.head_dim_qk),
                          DecodeFloat(given, spec.kv_dtype, k, num_keys * spec.head_dim_qk),
                          DecodeFloat(given, spec.kv_dtype, v, num_keys * spec.head_dim_v)};
  Result result;
  result.out.resize(static_cast<size_t>(num_rows) * spec.head_dim_v);
  result.lse.resize(static_cast<size_t>(num_rows));
  for (int64_t at = 0; at < num_rows; ++at) {
    const Row row{item.layer,
                  static_cast<uint32_t>(at % spec.num_q_heads),
                  item.q_start + at / spec.num_q_heads,
                  item.kv_len,
                  item.causal,
                  item.use_sinks};
    result.lse[at] =
        NaiveRow(spec, row, order, out_dtype, operands.q.data() + at * spec.head_dim_qk, operands,
                 result.out.data() + at * spec.head_dim_v);
  }
  return result;
}

}  // namespace attn::reference
