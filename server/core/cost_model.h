// How long a piece of work will take, learned from launches. The backend states costs in flops and
// bytes; here they become one number, units, and units become nanoseconds by running estimates,
// one for decode rows and one for prefill and appends, which run at different speeds.
#pragma once

#include "attn/attention/backend.h"
#include "attn/base/clock.h"

namespace attn::server {

enum class Lane : uint8_t {
  kDecode,  // a few rows and keys; joins the next step whole
  kBulk,    // prefill and long appends; takes what time decode leaves, cut into chunks
};

// Engine thread only.
class CostModel {
 public:
  explicit CostModel(const Backend* backend) : backend_(backend) {}

  double UnitsOf(const AttentionSpec& spec, const AttendEntry& entry) const {
    const Cost cost = backend_->CostOf(spec, entry);
    return cost.attend_flops + cost.moved_bytes * kUnitsPerByte;
  }
  // Reading `count` new keys and values and writing them to their pages.
  double AppendUnitsOf(const AttentionSpec& spec, uint32_t count) const;

  Nanos NanosOf(Lane lane, double units) const;
  // The inverse: what fits into `time`.
  double UnitsIn(Lane lane, Nanos time) const;

  // A launch of so many units of either lane took `elapsed`.
  void Observe(double decode_units, double bulk_units, Nanos elapsed);

  int32_t cut_rows() const { return backend_->prefill_cut_rows(); }

 private:
  // A byte moved takes about the time of so many flops: 150 Gflop/s to 19 GB/s on two cores.
  static constexpr double kUnitsPerByte = 8;

  double& RateOf(Lane lane) { return lane == Lane::kDecode ? decode_rate_ : bulk_rate_; }
  double RateOf(Lane lane) const { return lane == Lane::kDecode ? decode_rate_ : bulk_rate_; }
  void Learn(Lane lane, double rate);

  const Backend* backend_;
  // Nanoseconds per unit. The start is a slow core, so that the first chunk is rather too short.
  double decode_rate_ = 0.1;
  double bulk_rate_ = 0.1;
  bool decode_known_ = false;
  bool bulk_known_ = false;
};

}  // namespace attn::server
