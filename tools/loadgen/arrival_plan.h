// Which requests come when: a trace, scaled and cut, or a Poisson process.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tools/loadgen/options.h"
#include "tools/loadgen/trace_reader.h"

namespace attn::loadgen {

// The first max_requests of the trace, scaled in time and length. Lengths stay at least 1.
std::vector<TraceRequest> ScaleTrace(std::vector<TraceRequest> trace, const Options& options);

// max_requests arrivals with exponential gaps of mean 1/rate seconds and exponential lengths; then
// scaled as a trace is. The same seed gives the same plan.
std::vector<TraceRequest> PoissonPlan(const Options& options);

absl::StatusOr<std::vector<TraceRequest>> MakePlan(const Options& options);

}  // namespace attn::loadgen
