#include "tests/e2e/plain_attention.h"

#include <cmath>
#include <limits>

namespace attn::test {
namespace {

constexpr float kSinks[kQHeads] = {0.5f, -1.0f, 2.0f, 0.0f};

double Dot(const float* a, const float* b) {
  double sum = 0;
  for (uint32_t d = 0; d < kHeadDim; ++d) sum += double{a[d]} * double{b[d]};
  return sum;
}

bool Visible(const PlainQuery& query, int64_t position, int64_t key) {
  if (key >= query.kv_end) return false;
  if (query.causal && key > position) return false;
  return query.layer == 0 || key >= position - int64_t{kWindowLeft};
}

// One row of one head: out [kHeadDim]; returns the log of the denominator.
double AttendRow(const PlainLayer& kv, const float* q, const PlainQuery& query, int64_t position,
                 uint32_t head, float* out) {
  const uint32_t kv_head = head / (kQHeads / kKvHeads);
  const bool sink = query.layer == 1 && query.sinks;
  std::vector<int64_t> keys;
  std::vector<double> logits;
  double highest = sink ? double{kSinks[head]} : -std::numeric_limits<double>::infinity();
  for (int64_t key = 0; key < query.kv_end; ++key) {
    if (!Visible(query, position, key)) continue;
    const float* k = &kv.k[(key * kKvHeads + kv_head) * kHeadDim];
    keys.push_back(key);
    logits.push_back(Dot(q, k) / std::sqrt(double{kHeadDim}));
    highest = std::max(highest, logits.back());
  }
  for (uint32_t d = 0; d < kHeadDim; ++d) out[d] = 0;
  if (std::isinf(highest)) return highest;
  double sum = sink ? std::exp(double{kSinks[head]} - highest) : 0;
  std::vector<double> total(kHeadDim, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(logits[i] - highest);
    sum += weight;
    const float* v = &kv.v[(keys[i] * kKvHeads + kv_head) * kHeadDim];
    for (uint32_t d = 0; d < kHeadDim; ++d) total[d] += weight * double{v[d]};
  }
  for (uint32_t d = 0; d < kHeadDim; ++d) out[d] = static_cast<float>(total[d] / sum);
  return highest + std::log(sum);
}

}  // namespace

v1::ModelSpec TinySpec(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_activation_dtype(v1::DATA_TYPE_FLOAT32);
  spec.set_num_layers(kLayers);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    v1::LayerGroup* group = spec.add_layer_groups();
    group->add_layers(layer);
    group->set_num_q_heads(kQHeads);
    group->set_num_kv_heads(kKvHeads);
    group->set_head_dim_qk(kHeadDim);
  }
  v1::LayerGroup* windowed = spec.mutable_layer_groups(1);
  windowed->mutable_window()->set_left(kWindowLeft);
  windowed->set_sink_logits_per_head(1);
  for (const float sink : kSinks) windowed->add_sink_logits(sink);
  return spec;
}

Rows RandomRows(Random& random, int64_t rows, uint32_t heads) {
  Rows values(rows * heads * kHeadDim);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

void PlainLayer::Append(const Rows& new_k, const Rows& new_v) {
  k.insert(k.end(), new_k.begin(), new_k.end());
  v.insert(v.end(), new_v.begin(), new_v.end());
}

void PlainLayer::Truncate(int64_t len) {
  k.resize(len * kKvHeads * kHeadDim);
  v.resize(len * kKvHeads * kHeadDim);
}

Rows PlainAttend(const PlainLayer& kv, const Rows& q, const PlainQuery& query,
                 std::vector<float>* lse) {
  const int64_t rows = static_cast<int64_t>(q.size()) / (kQHeads * kHeadDim);
  Rows out(q.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (uint32_t head = 0; head < kQHeads; ++head) {
      const int64_t at = (row * kQHeads + head) * kHeadDim;
      const double log_sum = AttendRow(kv, &q[at], query, query.q_start + row, head, &out[at]);
      if (lse != nullptr) lse->push_back(static_cast<float>(log_sum));
    }
  }
  return out;
}

}  // namespace attn::test
