#include "tools/loadgen/arrival_plan.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "attn/base/status_macros.h"

namespace attn::loadgen {
namespace {

uint32_t AtLeastOne(double length) {
  return static_cast<uint32_t>(std::clamp(std::round(length), 1.0, 4e9));
}

}  // namespace

std::vector<TraceRequest> ScaleTrace(std::vector<TraceRequest> trace, const Options& options) {
  if (options.max_requests != 0 && trace.size() > options.max_requests) {
    trace.resize(options.max_requests);
  }
  for (TraceRequest& request : trace) {
    request.arrival = static_cast<Nanos>(static_cast<double>(request.arrival) * options.time_scale);
    request.context_len = AtLeastOne(request.context_len * options.length_scale);
    request.generated_len = AtLeastOne(request.generated_len * options.length_scale);
    if (options.max_context != 0) {
      request.context_len = std::min(request.context_len, options.max_context);
    }
  }
  return trace;
}

std::vector<TraceRequest> PoissonPlan(const Options& options) {
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap(options.rate);
  std::exponential_distribution<double> context(1.0 / options.context);
  std::exponential_distribution<double> generated(1.0 / options.generated);
  std::vector<TraceRequest> plan;
  double seconds = 0;
  for (uint32_t i = 0; i < options.max_requests; ++i) {
    if (i > 0) seconds += gap(random);
    TraceRequest request;
    request.arrival = static_cast<Nanos>(seconds * kSecond);
    request.context_len = AtLeastOne(context(random));
    request.generated_len = AtLeastOne(generated(random));
    plan.push_back(request);
  }
  return ScaleTrace(std::move(plan), options);
}

absl::StatusOr<std::vector<TraceRequest>> MakePlan(const Options& options) {
  if (options.trace.empty()) return PoissonPlan(options);
  ATTN_ASSIGN_OR_RETURN(std::vector<TraceRequest> trace, ReadTraceFile(options.trace));
  return ScaleTrace(std::move(trace), options);
}

}  // namespace attn::loadgen
