#include "tests/attention/cuda/sampled_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "attn/base/dtype.h"

namespace attn::cuda {
namespace {

constexpr int kDim = kKvHeadDim;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RowResult {
  std::vector<double> out = std::vector<double>(kDim, 0.0);
  double lse = -kInfinity;
};

struct Row {
  size_t entry;
  int32_t query;
  int32_t head;
};

// How weights and outputs are rounded on the way.
enum class Rounding : bool { kNone, kLikeKernels };

double Logit(const DeviceCase& c, const uint16_t* q, const uint16_t* k) {
  double dot = 0;
  for (int d = 0; d < kDim; ++d) dot += double{Bf16ToFloat(q[d])} * Bf16ToFloat(k[d]);
  const double logit = dot * c.scale;
  return c.soft_cap > 0 ? c.soft_cap * std::tanh(logit / c.soft_cap) : logit;
}

bool IsVisible(const DeviceCase& c, const CaseEntry& entry, int64_t position, int64_t key) {
  if (entry.is_causal && key > position) return false;
  if (c.left.has_value() && key < position - int64_t{*c.left}) return false;
  return !c.right.has_value() || key <= position + int64_t{*c.right};
}

RowResult Compute(const CaseOnDevice& on_device, const Row& row, Rounding rounding) {
  const DeviceCase& c = on_device.description();
  const CaseEntry& entry = c.entries[row.entry];
  const EntryInputs& inputs = on_device.inputs()[row.entry];
  const int32_t kv_head = row.head / c.group_size();
  const uint16_t* q = &inputs.q[(size_t{1} * row.query * c.num_q_heads + row.head) * kDim];
  std::vector<std::pair<int32_t, double>> logits;
  double max = -kInfinity;
  for (int32_t key = 0; key < entry.kv_len; ++key) {
    if (!IsVisible(c, entry, entry.start() + row.query, key)) continue;
    const uint16_t* k = &inputs.k[(size_t{1} * key * c.num_kv_heads + kv_head) * kDim];
    logits.push_back({key, Logit(c, q, k)});
    max = std::max(max, logits.back().second);
  }
  double sum = 0;
  RowResult result;
  for (const auto& [key, logit] : logits) {
    double weight = std::exp(logit - max);
    sum += weight;
    if (rounding == Rounding::kLikeKernels) {
      weight = RoundTo(DType::kBFloat16, static_cast<float>(weight));
    }
    const uint16_t* v = &inputs.v[(size_t{1} * key * c.num_kv_heads + kv_head) * kDim];
    for (int d = 0; d < kDim; ++d) result.out[d] += weight * Bf16ToFloat(v[d]);
  }
  double top = max;
  const float* sinks =
      on_device.sinks().data() + (size_t{1} * entry.layer * c.num_q_heads + row.head) * c.num_sinks;
  const uint32_t num_sinks = entry.uses_sinks ? c.num_sinks : 0;
  for (uint32_t i = 0; i < num_sinks; ++i) top = std::max(top, double{sinks[i]});
  if (top == -kInfinity) return result;
  double total = logits.empty() ? 0 : sum * std::exp(max - top);
  for (uint32_t i = 0; i < num_sinks; ++i) total += std::exp(sinks[i] - top);
  for (double& x : result.out) x *= logits.empty() ? 0 : std::exp(max - top) / total;
  result.lse = top + std::log(total);
  if (rounding == Rounding::kLikeKernels && !entry.writes_fp32) {
    for (double& x : result.out) x = RoundTo(DType::kBFloat16, static_cast<float>(x));
  }
  return result;
}

std::vector<Row> SampleRows(const DeviceCase& c, int rows_per_entry) {
  std::mt19937_64 random(c.seed);
  std::vector<Row> rows;
  for (size_t i = 0; i < c.entries.size(); ++i) {
    const int32_t q_len = c.entries[i].q_len;
    if (q_len == 0) continue;
    for (int n = 0; n < rows_per_entry; ++n) {
      // The first and the last query among them.
      const int32_t query = n == 0 ? 0
                            : n == 1
                                ? q_len - 1
                                : static_cast<int32_t>(random() % static_cast<uint64_t>(q_len));
      rows.push_back(
          {i, query, static_cast<int32_t>(random() % static_cast<uint64_t>(c.num_q_heads))});
    }
  }
  return rows;
}

std::string FindNan(const DeviceCase& c, const std::vector<EntryOutputs>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const CaseEntry& entry = c.entries[i];
    const size_t count = size_t{1} * entry.q_len * c.num_q_heads;
    for (size_t row = 0; row < count; ++row) {
      if (std::isnan(outputs[i].lse[row])) {
        return absl::StrCat("entry ", i, ": lse of row ", row, " is NaN");
      }
      for (int d = 0; d < kDim; ++d) {
        if (std::isnan(outputs[i].At(entry.writes_fp32, row * kDim + d))) {
          return absl::StrCat("entry ", i, ": query ", row / c.num_q_heads, " head ",
                              row % c.num_q_heads, " element ", d, " is NaN");
        }
      }
    }
  }
  return "";
}

}  // namespace

std::string Judge(const CaseOnDevice& on_device, const std::vector<EntryOutputs>& outputs,
                  int rows_per_entry) {
  const DeviceCase& c = on_device.description();
  std::string wrong = FindNan(c, outputs);
  if (!wrong.empty()) return wrong;
  double naive_error = 0, error = 0, scale = 0, lse_error = 0;
  Row worst = {};
  for (const Row& row : SampleRows(c, rows_per_entry)) {
    const RowResult exact = Compute(on_device, row, Rounding::kNone);
    const RowResult naive = Compute(on_device, row, Rounding::kLikeKernels);
    const EntryOutputs& got = outputs[row.entry];
    const bool is_fp32 = c.entries[row.entry].writes_fp32;
    const size_t index = size_t{1} * row.query * c.num_q_heads + row.head;
    for (int d = 0; d < kDim; ++d) {
      const double here = std::abs(got.At(is_fp32, index * kDim + d) - exact.out[d]);
      if (here > error) worst = row;
      error = std::max(error, here);
      naive_error = std::max(naive_error, std::abs(naive.out[d] - exact.out[d]));
      scale = std::max(scale, std::abs(exact.out[d]));
    }
    if (std::isinf(exact.lse) != std::isinf(got.lse[index])) {
      return absl::StrCat("entry ", row.entry, " query ", row.query, " head ", row.head,
                          ": lse is ", got.lse[index], ", want ", exact.lse);
    }
    if (!std::isinf(exact.lse)) {
      lse_error =
          std::max(lse_error, std::abs(got.lse[index] - exact.lse) / (1.0 + std::abs(exact.lse)));
    }
  }
  const double bound = 3 * naive_error + 1e-5 * scale;
  if (!(error <= bound)) {
    return absl::StrCat("entry ", worst.entry, " query ", worst.query, " head ", worst.head,
                        ": error ", error, ", want at most ", bound);
  }
  if (!(lse_error <= 1e-5)) return absl::StrCat("relative error of lse ", lse_error);
  return "";
}

}  // namespace attn::cuda
