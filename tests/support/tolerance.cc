#include "tests/support/tolerance.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "attention/reference/naive_attention.h"

namespace attn::test {
namespace {

double AbsMax(const std::vector<double>& values) {
  double maximum = 0;
  for (const double value : values) {
    if (std::isfinite(value)) maximum = std::max(maximum, std::fabs(value));
  }
  return maximum;
}

double MaxDistance(const std::vector<double>& a, const std::vector<double>& b) {
  double maximum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i])) {
      maximum = std::max(maximum, std::fabs(a[i] - b[i]));
    }
  }
  return maximum;
}

// The least that a naive error counts as, relative to the largest value: one rounding of `dtype`.
double LeastRelativeError(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0;
    case DType::kFloat16:
      return 0x1p-12;
    case DType::kBFloat16:
      return 0x1p-9;
  }
  return 0;
}

// Same value, or both finite and within tolerance, or both NaN.
bool Agree(double reference, double got, double tolerance) {
  if (std::isnan(reference) || std::isnan(got)) return std::isnan(reference) && std::isnan(got);
  if (std::isinf(reference) || std::isinf(got)) return reference == got;
  return std::fabs(reference - got) <= tolerance;
}

::testing::AssertionResult Compare(const char* what, const Problem& problem, size_t item,
                                   size_t width, const std::vector<double>& reference,
                                   const std::vector<double>& got, double tolerance) {
  size_t num_wrong = 0;
  size_t worst = 0;
  double worst_distance = -1;
  for (size_t i = 0; i < reference.size(); ++i) {
    if (Agree(reference[i], got[i], tolerance)) continue;
    ++num_wrong;
    const double distance = std::fabs(reference[i] - got[i]);
    const double rank = std::isnan(distance) ? INFINITY : distance;
    if (rank > worst_distance) worst = i, worst_distance = rank;
  }
  if (num_wrong == 0) return ::testing::AssertionSuccess();
  const size_t row = worst / width / problem.spec.num_q_heads;
  const size_t head = worst / width % problem.spec.num_q_heads;
  return ::testing::AssertionFailure()
         << what << " of item " << item << ": " << num_wrong << " of " << reference.size()
         << " wrong, worst at row " << row << " head " << head << " element " << worst % width
         << ": got " << got[worst] << ", want " << reference[worst] << " ± " << tolerance;
}

}  // namespace

double ToleranceOf(double naive_error, double reference_absmax) {
  return 3 * naive_error + 1e-5 * (1 + reference_absmax);
}

Expected ExpectedOf(const Problem& problem, size_t item) {
  const AttentionSpec& spec = problem.spec;
  const CaseItem& case_item = problem.items[item];
  const ItemTensors& tensors = problem.tensors[item];
  const reference::Item as_item = case_item.AsReferenceItem();
  const char* q = tensors.q.data();
  const char* k = tensors.k.data();
  const char* v = tensors.v.data();
  Expected expected;
  expected.result = reference::Attend(spec, as_item, q, k, v);
  const double out_absmax = AbsMax(expected.result.out);
  const double lse_absmax = AbsMax(expected.result.lse);
  double out_error = out_absmax * std::max(LeastRelativeError(spec.kv_dtype),
                                           LeastRelativeError(case_item.out_dtype));
  double lse_error = 0;
  for (const auto order : {reference::SumOrder::kForward, reference::SumOrder::kBackward}) {
    const reference::Result naive =
        reference::AttendNaively(spec, as_item, case_item.out_dtype, order, q, k, v);
    out_error = std::max(out_error, MaxDistance(naive.out, expected.result.out));
    lse_error = std::max(lse_error, MaxDistance(naive.lse, expected.result.lse));
  }
  expected.out_tolerance = ToleranceOf(out_error, out_absmax);
  expected.lse_tolerance = ToleranceOf(lse_error, lse_absmax);
  return expected;
}

::testing::AssertionResult IsWithinTolerance(const Problem& problem, size_t item,
                                             const Expected& expected, const ItemOutput& got) {
  const size_t dim_v = problem.spec.head_dim_v;
  const std::vector<double> out = got.OutAsDoubles(problem.items[item].out_dtype);
  for (size_t row = 0; row < expected.result.lse.size(); ++row) {
    const auto is_zero = [&](const std::vector<double>& values) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * dim_v);
      return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(dim_v),
                         [](double value) { return value == 0.0; });
    };
    if (is_zero(expected.result.out) && !is_zero(out)) {
      return ::testing::AssertionFailure()
             << "out of item " << item << ": row " << row / problem.spec.num_q_heads << " head "
             << row % problem.spec.num_q_heads << " sees nothing and is not exactly 0";
    }
  }
  const ::testing::AssertionResult out_agrees =
      Compare("out", problem, item, dim_v, expected.result.out, out, expected.out_tolerance);
  if (!out_agrees || !problem.items[item].wants_lse) return out_agrees;
  const std::vector<double> lse(got.lse.begin(), got.lse.end());
  return Compare("lse", problem, item, 1, expected.result.lse, lse, expected.lse_tolerance);
}

}  // namespace attn::test
