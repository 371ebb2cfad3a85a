#include "attention/reference/reference_attention.h"

#include <cmath>
#include <limits>

#include "attn/base/dtype.h"

namespace attn::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double LoadRounded(DType dtype, DType stored_as, const void* data, int64_t index) {
  const float value = LoadAsFloat(dtype, data, index);
  return dtype == stored_as ? value : RoundTo(stored_as, value);
}

void DecodeVector(DType dtype, DType stored_as, const void* data, int64_t first, uint32_t dim,
                  double* to) {
  for (uint32_t d = 0; d < dim; ++d) to[d] = LoadRounded(dtype, stored_as, data, first + d);
}

// `count` vectors of `dim` elements, the first at element `first`, `stride` elements apart.
std::vector<double> Decode(DType dtype, DType stored_as, const void* data, int64_t first,
                           int64_t stride, int64_t count, uint32_t dim) {
  std::vector<double> decoded(static_cast<size_t>(count) * dim);
  for (int64_t i = 0; i < count; ++i) {
    DecodeVector(dtype, stored_as, data, first + i * stride, dim, decoded.data() + i * dim);
  }
  return decoded;
}

double Dot(const double* a, const double* b, uint32_t dim) {
  double sum = 0;
  for (uint32_t d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}

// Steps 1 and 2 of the definition: scale, then cap.
double Logit(const ScoreSpec& score, double dot) {
  const double scaled = static_cast<double>(score.softmax_scale) * dot;
  if (score.logit_soft_cap == 0.0f) return scaled;
  const double cap = score.logit_soft_cap;
  return cap * std::tanh(scaled / cap);
}

// Unlike std::max, keeps a NaN whichever side it stands on.
double MaxKeepingNan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return a < b ? b : a;
}

// Softmax and weighted sum over keys already decoded. key_at(j) and value_at(j) give the vectors
// of a visible position j as const double*.
template <typename KeyAt, typename ValueAt>
double AttendRow(const AttentionSpec& spec, const Row& row, const double* q, const KeyAt& key_at,
                 const ValueAt& value_at, double* out) {
  const ScoreSpec& score = spec.score;
  std::vector<int64_t> visible;
  std::vector<double> logits;
  double maximum = kMinusInfinity;
  for (int64_t j = 0; j < row.kv_len; ++j) {
    if (!IsVisible(score, row.causal, row.position, j)) continue;
    visible.push_back(j);
    logits.push_back(Logit(score, Dot(q, key_at(j), spec.head_dim_qk)));
    maximum = MaxKeepingNan(maximum, logits.back());
  }
  const uint32_t num_sinks = row.use_sinks ? score.sink_logits_per_head : 0;
  const size_t first_sink =
      (size_t{row.layer} * spec.num_q_heads + row.q_head) * score.sink_logits_per_head;
  for (uint32_t i = 0; i < num_sinks; ++i) {
    maximum = MaxKeepingNan(maximum, score.sink_logits[first_sink + i]);
  }
  for (uint32_t d = 0; d < spec.head_dim_v; ++d) out[d] = 0;
  if (visible.empty() && num_sinks == 0) return kMinusInfinity;

  double denominator = 0;
  for (uint32_t i = 0; i < num_sinks; ++i) {
    denominator += std::exp(score.sink_logits[first_sink + i] - maximum);
  }
  for (size_t i = 0; i < visible.size(); ++i) {
    const double weight = std::exp(logits[i] - maximum);
    denominator += weight;
    const double* value = value_at(visible[i]);
    for (uint32_t d = 0; d < spec.head_dim_v; ++d) out[d] += weight * value[d];
  }
  for (uint32_t d = 0; d < spec.head_dim_v; ++d) out[d] /= denominator;
  return maximum + std::log(denominator);
}

}  // namespace

bool IsVisible(const ScoreSpec& score, bool causal, int64_t position, int64_t key) {
  if (causal && key > position) return false;
  if (score.window.left.has_value() && key < position - int64_t{*score.window.left}) return false;
  if (score.window.right.has_value() && key > position + int64_t{*score.window.right}) return false;
  return true;
}

double ReferenceRow(const AttentionSpec& spec, const Row& row, const void* q, const void* k,
                    const void* v, double* out) {
  const uint32_t kv_head = row.q_head / spec.group_size();
  const std::vector<double> query =
      Decode(spec.activation_dtype, spec.activation_dtype, q, 0, 0, 1, spec.head_dim_qk);
  std::vector<double> key(spec.head_dim_qk);
  std::vector<double> value(spec.head_dim_v);
  const auto decode = [&](const void* data, int64_t j, std::vector<double>& to) {
    const uint32_t dim = static_cast<uint32_t>(to.size());
    const int64_t first = (j * spec.num_kv_heads + kv_head) * dim;
    DecodeVector(spec.activation_dtype, spec.kv_dtype, data, first, dim, to.data());
    return static_cast<const double*>(to.data());
  };
  return AttendRow(
      spec, row, query.data(), [&](int64_t j) { return decode(k, j, key); },
      [&](int64_t j) { return decode(v, j, value); }, out);
}

Result Attend(const AttentionSpec& spec, const Item& item, const void* q, const void* k,
              const void* v) {
  const uint32_t dim_qk = spec.head_dim_qk;
  const uint32_t dim_v = spec.head_dim_v;
  const int64_t num_rows = int64_t{item.q_len} * spec.num_q_heads;
  Result result;
  result.out.resize(static_cast<size_t>(num_rows) * dim_v);
  result.lse.resize(static_cast<size_t>(num_rows));
  const std::vector<double> queries =
      Decode(spec.activation_dtype, spec.activation_dtype, q, 0, dim_qk, num_rows, dim_qk);
  for (uint32_t kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head) {
    const auto decode_head = [&](const void* data, uint32_t dim) {
      return Decode(spec.activation_dtype, spec.kv_dtype, data, int64_t{kv_head} * dim,
                    int64_t{spec.num_kv_heads} * dim, item.kv_len, dim);
    };
    const std::vector<double> keys = decode_head(k, dim_qk);
    const std::vector<double> values = decode_head(v, dim_v);
    for (int32_t i = 0; i < item.q_len; ++i) {
      for (uint32_t g = 0; g < spec.group_size(); ++g) {
        const uint32_t q_head = kv_head * spec.group_size() + g;
        const int64_t at = int64_t{i} * spec.num_q_heads + q_head;
        const Row row{item.layer,  q_head,      item.q_start + i,
                      item.kv_len, item.causal, item.use_sinks};
        result.lse[at] = AttendRow(
            spec, row, queries.data() + at * dim_qk,
            [&](int64_t j) { return keys.data() + j * dim_qk; },
            [&](int64_t j) { return values.data() + j * dim_v; }, result.out.data() + at * dim_v);
      }
    }
  }
  return result;
}

}  // namespace attn::reference
