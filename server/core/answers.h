// Settled calls on their way out. Kept back until the end of a stage, so that the queue is told
// once and answers leave together.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "server/core/call.h"
#include "server/core/call_queue.h"
#include "server/core/stats.h"

namespace attn::server {

// Engine thread only.
class Answers {
 public:
  Answers(const Clock* clock, CallQueue* queue, EngineStats* stats)
      : clock_(clock), queue_(queue), stats_(stats) {}

  // The call has its status and result.
  void Add(std::unique_ptr<Call> call) {
    if (!call->status.ok()) stats_->refused_calls[ReasonOf(call->status)].Add(1);
    calls_.push_back(std::move(call));
  }
  void Fail(std::unique_ptr<Call> call, absl::Status status) {
    call->status = std::move(status);
    Add(std::move(call));
  }
  void CountRefusedItem(const absl::Status& status) {
    stats_->refused_items[ReasonOf(status)].Add(1);
  }
  // Of a lifecycle call, once however many calls get the result.
  void CountRefusedItems(const Result& result);
  void Flush();

 private:
  void CountAnswered(const Call& call, Nanos now);

  const Clock* clock_;
  CallQueue* queue_;
  EngineStats* stats_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace attn::server
