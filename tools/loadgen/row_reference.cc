#include "tools/loadgen/row_reference.h"

#include <algorithm>
#include <cmath>

#include "attn/base/dtype.h"

namespace attn::loadgen {
namespace {

double Logit(const ModelPlan& model, const float* q, const float* k) {
  double dot = 0;
  for (uint32_t d = 0; d < model.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
  const double logit = dot * model.softmax_scale;
  return model.soft_cap > 0 ? model.soft_cap * std::tanh(logit / model.soft_cap) : logit;
}

}  // namespace

ReferenceRow ComputeReferenceRow(const ModelPlan& model, const LayerRule& layer, uint32_t position,
                                 const float* q, const float* k, const float* v) {
  const uint32_t dim = model.head_dim;
  const uint32_t first = layer.window_left.has_value() && *layer.window_left < position
                             ? position - *layer.window_left
                             : 0;
  ReferenceRow row;
  row.out.assign(model.q_elements(), 0.0);
  row.lse.resize(model.num_q_heads);
  std::vector<double> logits(position + 1 - first), naive;
  for (uint32_t head = 0; head < model.num_q_heads; ++head) {
    const size_t kv_head = head / model.group_size();
    const auto offset = [&](uint32_t key) { return key * model.kv_elements() + kv_head * dim; };
    const float* sinks = layer.sinks.data() + size_t{head} * layer.sinks_per_head;
    double max = -INFINITY;
    for (uint32_t key = first; key <= position; ++key) {
      logits[key - first] = Logit(model, q + size_t{head} * dim, k + offset(key));
      max = std::max(max, logits[key - first]);
    }
    for (uint32_t i = 0; i < layer.sinks_per_head; ++i) max = std::max<double>(max, sinks[i]);
    double sum = 0;
    for (uint32_t i = 0; i < layer.sinks_per_head; ++i) sum += std::exp(sinks[i] - max);
    double* out = row.out.data() + size_t{head} * dim;
    naive.assign(dim, 0.0);
    for (uint32_t key = first; key <= position; ++key) {
      const double weight = std::exp(logits[key - first] - max);
      const double rounded = RoundTo(model.dtype, static_cast<float>(weight));
      sum += weight;
      for (uint32_t d = 0; d < dim; ++d) {
        const double value = v[offset(key) + d];
        out[d] += weight * value;
        naive[d] += rounded * value;
      }
    }
    for (uint32_t d = 0; d < dim; ++d) {
      out[d] /= sum;
      if (model.dtype == DType::kFloat32) continue;
      const double result = RoundTo(model.dtype, static_cast<float>(naive[d] / sum));
      row.naive_error = std::max(row.naive_error, std::abs(result - out[d]));
    }
    row.lse[head] = max + std::log(sum);
  }
  return row;
}

double Tolerance(DType dtype, double absmax, double naive_error) {
  const double fixed = 1e-5 * (1 + absmax);
  switch (dtype) {
    case DType::kBFloat16:
      return 3 * std::max(naive_error, std::ldexp(absmax, -9)) + fixed;
    case DType::kFloat16:
      return 3 * std::max(naive_error, std::ldexp(absmax, -12)) + fixed;
    case DType::kFloat32:
      break;
  }
  return 2 * fixed;
}

}  // namespace attn::loadgen
