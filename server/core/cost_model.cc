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
constexpr double kLowestRate = 1e-5;
constexpr double kHighestRate = 100;

}  // namespace

double CostModel::AppendUnitsOf(const AttentionSpec& spec, uint32_t count) const {
  const double elements =
      double{1} * count * spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_v);
  return elements * static_cast<double>(SizeOf(spec.activation_dtype) + SizeOf(spec.kv_dtype)) *
         kUnitsPerByte;
}

Nanos CostModel::NanosOf(Lane lane, double units) const {
  return static_cast<Nanos>(units * RateOf(lane));
}

double CostModel::UnitsIn(Lane lane, Nanos time) const {
  return static_cast<double>(time) / RateOf(lane);
}

void CostModel::Observe(double decode_units, double bulk_units, Nanos elapsed) {
  const Nanos expected = NanosOf(Lane::kDecode, decode_units) + NanosOf(Lane::kBulk, bulk_units);
  if (elapsed <= 0 || std::max(elapsed, expected) < kShortestLesson) return;
  if (bulk_units <= 0) {
    if (decode_units > 0) Learn(Lane::kDecode, static_cast<double>(elapsed) / decode_units);
    return;
  }
  // What is known about decode is taken off; at least a tenth stays, whatever it says.
  const Nanos bulk = std::max(elapsed - NanosOf(Lane::kDecode, decode_units), elapsed / 10);
  Learn(Lane::kBulk, static_cast<double>(bulk) / bulk_units);
}

void CostModel::Learn(Lane lane, double rate) {
  rate = std::clamp(rate, kLowestRate, kHighestRate);
  bool& known = lane == Lane::kDecode ? decode_known_ : bulk_known_;
  double& estimate = RateOf(lane);
  rate = known ? std::min(rate, kLargestRise * estimate) : rate;
  estimate = known ? estimate + kNewWeight * (rate - estimate) : rate;
  known = true;
}

}  // namespace attn::server
