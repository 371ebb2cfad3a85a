// Counts, gives back what admission counted, then hands every call to its sink.
#include "server/core/answers.h"

namespace attn::server {
namespace {

const absl::Status& StatusOf(const absl::Status& item) { return item; }
template <typename Value>
const absl::Status& StatusOf(const absl::StatusOr<Value>& item) {
  return item.status();
}

}  // namespace

void Answers::CountRefusedItems(const Result& result) {
  const auto count = [this](const auto& lifecycle_result) {
    if constexpr (requires { StatusOf(lifecycle_result.items.front()); }) {
      for (const auto& item : lifecycle_result.items) {
        if (!item.ok()) CountRefusedItem(StatusOf(item));
      }
    }
  };
  std::visit(count, result);
}

void Answers::CountAnswered(const Call& call, Nanos now) {
  stats_->completed_by_kind[call.request.index()].Add(1);
  const auto* const attend = std::get_if<AttendResult>(&call.result);
  if (attend == nullptr) return;
  if (attend->timing.launch_items > 0) {
    stats_->queue_time.Observe(static_cast<uint64_t>(attend->timing.queue));
    stats_->compute_time.Observe(static_cast<uint64_t>(attend->timing.compute));
  }
  stats_->call_time.Observe(static_cast<uint64_t>(now - call.arrival));
}

void Answers::Flush() {
  if (calls_.empty()) return;
  const Nanos now = clock_->Now();
  for (const std::unique_ptr<Call>& call : calls_) CountAnswered(*call, now);
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
