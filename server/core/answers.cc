// Gives back what admission counted, then hands every call to its sink.
#include "server/core/answers.h"

namespace attn::server {

void Answers::Flush() {
  if (calls_.empty()) return;
  size_t items = 0;
  size_t bytes = 0;
  for (const std::unique_ptr<Call>& call : calls_) {
    items += call->num_items();
    bytes += call->num_bytes();
  }
  // First, so that whoever sees an answer finds its room in the queue.
  queue_->Release(items, bytes);
  stats_->calls_completed.Add(calls_.size());
  CallSink* last = nullptr;
  for (std::unique_ptr<Call>& call : calls_) {
    CallSink* const sink = call->sink;
    if (last != nullptr && sink != last) last->Flush();
    last = sink;
    if (sink != nullptr) sink->Complete(std::move(call));
  }
  if (last != nullptr) last->Flush();
  calls_.clear();
}

}  // namespace attn::server
