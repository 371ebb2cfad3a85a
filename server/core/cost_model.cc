// Running estimates of nanoseconds per unit of cost.
#include "server/core/cost_model.h"

#include <algorithm>

namespace attn::server {
namespace {

// A launch that takes less, and was expected to, says more about the cost of starting one than
// about its rows.
constexpr Nanos kShortestLesson = 50 * kMicrosecond;
// A thread that was interrupted looks like a slow device: one launch raises an estimate by at most
// kNewWeight of itself.
constexpr double kLargestRise = 2;
// Weight of the newest launch: about ten launches are remembered.
constexpr double kNewWeight = 0.2;
// Bounds against nonsense, far from any device.
constexpr double kLowestRate = 1e-7;
constexpr double kHighestRate = 100;

}  // namespace

double CostModel::AppendUnitsOf(const AttentionSpec& spec, uint32_t count) const {
  const double elements =
      double{1} * count * spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_v);
  return elements * static_cast<double>(SizeOf(spec.activation_dtype) + SizeOf(spec.kv_dtype)) *
         kUnitsPerByte;
}

Nanos CostModel::NanosOf(UnitKind kind, double units) const {
  return static_cast<Nanos>(units * RateOf(kind).value());
}

double CostModel::UnitsIn(UnitKind kind, Nanos time) const {
  return static_cast<double>(time) / RateOf(kind).value();
}

void CostModel::Observe(const LaunchUnits& units, Nanos elapsed) {
  const Nanos decode = NanosOf(UnitKind::kDecode, units.decode);
  const Nanos prefill = NanosOf(UnitKind::kPrefill, units.prefill);
  const Nanos append = NanosOf(UnitKind::kAppend, units.append);
  const Nanos expected = decode + prefill + append;
  if (elapsed <= 0 || std::max(elapsed, expected) < kShortestLesson) return;
  if (units.prefill <= 0 && units.append <= 0) {
    if (units.decode <= 0) return;
    return Learn(UnitKind::kDecode, static_cast<double>(elapsed) / units.decode);
  }
  // The lesson is about the larger part of the bulk work. What is known about the rest is taken
  // off; at least a tenth stays, whatever it says.
  const bool is_append = append > prefill;
  const Nanos rest = decode + (is_append ? prefill : append);
  const Nanos learned = std::max(elapsed - rest, elapsed / 10);
  if (is_append) {
    Learn(UnitKind::kAppend, static_cast<double>(learned) / units.append);
  } else {
    Learn(UnitKind::kPrefill, static_cast<double>(learned) / units.prefill);
  }
}

void CostModel::Learn(UnitKind kind, double nanos_per_unit) {
  Rate& rate = RateOf(kind);
  double lesson = std::clamp(nanos_per_unit, kLowestRate, kHighestRate);
  if (rate.is_known) {
    const double known = rate.value();
    lesson = std::min(lesson, kLargestRise * known);
    lesson = known + kNewWeight * (lesson - known);
  }
  rate.estimate.store(lesson, std::memory_order_relaxed);
  rate.is_known = true;
}

}  // namespace attn::server
