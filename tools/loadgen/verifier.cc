#include "tools/loadgen/verifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"

namespace attn::loadgen {
namespace {

auto LayerOf(const SampledRow& row) { return std::tie(row.row.sequence, row.row.layer); }

// Keys and values 0..len-1 of one layer of one sequence, as float.
class LayerTensors {
 public:
  LayerTensors(const ModelPlan& model, const TensorSource& source, const RowId& layer, uint32_t len)
      : k_(len * model.kv_elements()), v_(len * model.kv_elements()) {
    RowId row = layer;
    for (row.position = 0; row.position < len; ++row.position) {
      const size_t at = row.position * model.kv_elements();
      Load(source, row, TensorKind::kKey, model.kv_elements(), k_.data() + at);
      Load(source, row, TensorKind::kValue, model.kv_elements(), v_.data() + at);
    }
  }

  static void Load(const TensorSource& source, const RowId& row, TensorKind kind, size_t elements,
                   float* target) {
    std::vector<char> bytes(elements * SizeOf(source.dtype()));
    source.Fill(row, kind, elements, bytes.data());
    for (size_t i = 0; i < elements; ++i) {
      target[i] = LoadAsFloat(source.dtype(), bytes.data(), static_cast<int64_t>(i));
    }
  }

  const float* k() const { return k_.data(); }
  const float* v() const { return v_.data(); }

 private:
  std::vector<float> k_;
  std::vector<float> v_;
};

// Largest error over the tolerance; infinite for a wrong number of values or a NaN.
template <typename Get>
double WorstRatio(DType dtype, const std::vector<double>& want, double naive_error, size_t got_size,
                  Get got) {
  if (got_size != want.size()) return INFINITY;
  double absmax = 0;
  for (const double value : want) absmax = std::max(absmax, std::abs(value));
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got(i)) - want[i]);
    if (!std::isfinite(error)) return INFINITY;
    worst = std::max(worst, error);
  }
  return worst / Tolerance(dtype, absmax, naive_error);
}

double CompareRow(const ModelPlan& model, const SampledRow& row, const ReferenceRow& want) {
  const double out = WorstRatio(
      model.dtype, want.out, want.naive_error, row.out.size() / SizeOf(model.dtype),
      [&](size_t i) { return LoadAsFloat(model.dtype, row.out.data(), static_cast<int64_t>(i)); });
  const double lse =
      WorstRatio(model.dtype, want.lse, 0, row.lse.size(), [&](size_t i) { return row.lse[i]; });
  return std::max(out, lse);
}

void Merge(const VerifyReport& part, VerifyReport* total) {
  total->rows += part.rows;
  total->mismatches += part.mismatches;
  total->worst = std::max(total->worst, part.worst);
  if (total->first_mismatch.empty()) total->first_mismatch = part.first_mismatch;
}

}  // namespace

void Verifier::Keep(SampledRow row) {
  const std::lock_guard lock(mutex_);
  rows_.push_back(std::move(row));
}

VerifyReport Verifier::Check(int num_threads) {
  // Rows of one layer of one sequence stand together, so that its tensors are made once.
  std::sort(rows_.begin(), rows_.end(), [](const SampledRow& a, const SampledRow& b) {
    return std::tuple_cat(LayerOf(a), std::tie(a.row.position)) <
           std::tuple_cat(LayerOf(b), std::tie(b.row.position));
  });
  const size_t num_parts = static_cast<size_t>(std::max(1, num_threads));
  std::vector<VerifyReport> parts(num_parts);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < num_parts; ++i) {
    threads.emplace_back([&, i] {
      parts[i] = CheckRange(rows_.size() * i / num_parts, rows_.size() * (i + 1) / num_parts);
    });
  }
  VerifyReport total;
  for (size_t i = 0; i < num_parts; ++i) {
    threads[i].join();
    Merge(parts[i], &total);
  }
  return total;
}

VerifyReport Verifier::CheckRange(size_t begin, size_t end) const {
  VerifyReport report;
  std::vector<float> q(model_->q_elements());
  while (begin < end) {
    size_t next = begin;
    while (next < end && LayerOf(rows_[next]) == LayerOf(rows_[begin])) ++next;
    const RowId& last = rows_[next - 1].row;
    const LayerTensors tensors(*model_, *source_, last, last.position + 1);
    for (; begin < next; ++begin) {
      const SampledRow& row = rows_[begin];
      LayerTensors::Load(*source_, row.row, TensorKind::kQuery, q.size(), q.data());
      const ReferenceRow want =
          ComputeReferenceRow(*model_, model_->layers[row.row.layer], row.row.position, q.data(),
                              tensors.k(), tensors.v());
      const double ratio = CompareRow(*model_, row, want);
      ++report.rows;
      report.worst = std::max(report.worst, ratio);
      if (ratio <= 1) continue;
      ++report.mismatches;
      if (report.first_mismatch.empty()) {
        report.first_mismatch =
            absl::StrFormat("sequence %u, layer %u, position %u: error is %.3g times the tolerance",
                            row.row.sequence, row.row.layer, row.row.position, ratio);
      }
    }
  }
  return report;
}

}  // namespace attn::loadgen
