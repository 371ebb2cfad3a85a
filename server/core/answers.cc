// Gives back what admission counted, then hands every call to its sink.
#include "server/core/answers.h"

namespace attn::server {

void Answers::Flush() {
  if (calls_.empty()) return;
  // First, so that whoever sees an answer finds its room in the queue.
  queue_->Release(calls_);
  stats_->calls_completed.Add(calls_.size());
  for (size_t i = 0; i < calls_.size(); ++i) {
    CallSink* const sink = calls_[i]->sink;
    if (sink == nullptr) continue;
    const bool follows = i + 1 < calls_.size() && calls_[i + 1]->sink == sink;
    follows ? sink->Complete(std::move(calls_[i])) : sink->CompleteLast(std::move(calls_[i]));
  }
  calls_.clear();
}

}  // namespace attn::server
