// What all RPCs of one server share. Owned by Server; outlives every reactor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/base/clock.h"
#include "server/core/engine.h"
#include "server/core/metric_table.h"
#include "server/core/model_registry.h"
#include "server/core/stats.h"
#include "server/core/wire_limits.h"
#include "server/rpc/call_gate.h"
#include "server/rpc/completion.h"
#include "server/rpc/decode.h"
#include "server/rpc/event_log.h"
#include "server/rpc/health_board.h"
#include "server/rpc/stream_set.h"

namespace attn::server {

struct RpcContext {
  WireLimits limits;
  // Requests of one stream in flight may hold this many bytes, or one request.
  uint64_t max_stream_bytes = 0;
  uint64_t server_epoch = 0;
  const ModelRegistry* registry = nullptr;
  Engine* engine = nullptr;
  Completion* completion = nullptr;
  const Clock* clock = &Clock::Real();
  mutable HealthBoard health;
  mutable CallGate gate;
  mutable StreamSet streams;
  mutable BorderStats border;
  EventLog* events = nullptr;

  // What the metrics of this server are read from. Any thread.
  MetricSources Sources() const;
  // Counts and logs a call that is answered with an error before it has reached the engine.
  // `request_id` is the client's; 0: it has none.
  void NoteRefused(absl::string_view request, uint64_t request_id,
                   const absl::Status& status) const;
  // Counts items that decoding has refused, of a call that is answered.
  void NoteRefusedItems(const std::vector<RefusedItem>& items) const;

  DecodeContext ForDecoding(AliasNotes* aliases) const {
    return {limits, *registry, server_epoch, aliases};
  }
  // A call that will come back to `origin` through the completion thread.
  std::unique_ptr<Call> MakeCall(
      Request request, std::shared_ptr<void> origin,
      std::shared_ptr<CancelFlag> cancelled = std::make_shared<CancelFlag>(false)) const {
    return std::unique_ptr<Call>(new Call{.request = std::move(request),
                                          .stream = nullptr,
                                          .cancelled = std::move(cancelled),
                                          .sink = completion,
                                          .origin = std::move(origin),
                                          .status = absl::OkStatus(),
                                          .result = {}});
  }
};

// What a draining server answers.
absl::Status DrainingError();

}  // namespace attn::server
