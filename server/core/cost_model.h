// How long a piece of work will take, learned from launches. The backend states costs in flops and
// bytes; here they become one number, units, and units become nanoseconds by running estimates,
// one for decode, one for prefill rows and one for long appends, which run at different speeds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "attn/attention/backend.h"
#include "attn/base/clock.h"

namespace attn::server {

enum class Lane : uint8_t {
  kDecode,  // a few rows and keys; joins the next step whole
  kBulk,    // prefill and long appends; takes what time decode leaves, cut into chunks
};

// What units were spent on. A decode item's few new keys go with its rows.
enum class UnitKind : uint8_t { kDecode, kPrefill, kAppend };

struct LaunchUnits {
  double decode = 0;
  double prefill = 0;
  double append = 0;
};

// Observe: engine thread only. All else: any thread.
class CostModel {
 public:
  explicit CostModel(const Backend* backend) : backend_(backend) {}

  double UnitsOf(const AttentionSpec& spec, const AttendEntry& entry) const {
    const Cost cost = backend_->CostOf(spec, entry);
    return cost.attend_flops + cost.moved_bytes * kUnitsPerByte;
  }
  // Reading `count` new keys and values and writing them to their pages.
  double AppendUnitsOf(const AttentionSpec& spec, uint32_t count) const;

  Nanos NanosOf(UnitKind kind, double units) const;
  // The inverse: what fits into `time`.
  double UnitsIn(UnitKind kind, Nanos time) const;

  // A launch of these took `elapsed`.
  void Observe(const LaunchUnits& units, Nanos elapsed);

  int32_t cut_rows() const { return backend_->prefill_cut_rows(); }

 private:
  // A byte moved takes about the time of so many flops: 150 Gflop/s to 19 GB/s on two cores.
  static constexpr double kUnitsPerByte = 8;

  // Nanoseconds per unit. The start is a slow core, so that the first chunk is rather too short.
  struct Rate {
    std::atomic<double> estimate{0.1};
    bool is_known = false;  // engine thread only

    double value() const { return estimate.load(std::memory_order_relaxed); }
  };
  Rate& RateOf(UnitKind kind) { return rates_[static_cast<size_t>(kind)]; }
  const Rate& RateOf(UnitKind kind) const { return rates_[static_cast<size_t>(kind)]; }
  void Learn(UnitKind kind, double nanos_per_unit);

  const Backend* backend_;
  std::array<Rate, 3> rates_;
};

}  // namespace attn::server
