// Settled calls on their way out. Kept back until the end of a stage, so that the queue is told
// once and answers leave together.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "server/core/call.h"
#include "server/core/call_queue.h"
#include "server/core/stats.h"

namespace attn::server {

// Engine thread only.
class Answers {
 public:
  Answers(CallQueue* queue, EngineStats* stats) : queue_(queue), stats_(stats) {}

  // The call has its status and result.
  void Add(std::unique_ptr<Call> call) {
    if (!call->status.ok()) CountFailure(call->status);
    calls_.push_back(std::move(call));
  }
  void Fail(std::unique_ptr<Call> call, absl::Status status) {
    call->status = std::move(status);
    Add(std::move(call));
  }
  void CountFailure(const absl::Status& status) {
    const auto reason = static_cast<size_t>(ReasonOf(status));
    if (reason < stats_->failures_by_reason.size()) stats_->failures_by_reason[reason].Add(1);
  }
  void Flush();

 private:
  CallQueue* queue_;
  EngineStats* stats_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace attn::server
