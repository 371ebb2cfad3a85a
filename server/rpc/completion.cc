#include "server/rpc/completion.h"

#include <utility>

namespace attn::server {

Completion::Completion() : thread_([this] { Run(); }) {}

Completion::~Completion() { Stop(); }

void Completion::Complete(std::unique_ptr<Call> call) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(call));
    wake = std::exchange(sleeping_, false);
  }
  if (wake) wake_.notify_one();
}

void Completion::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Completion::Run() {
  std::vector<std::unique_ptr<Call>> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      while (pending_.empty() && !stopping_) {
        sleeping_ = true;
        wake_.wait(lock);
      }
      if (pending_.empty()) return;
      batch.swap(pending_);
    }
    for (std::unique_ptr<Call>& call : batch) {
      // The origin may own what the call lies in, so it outlives the call.
      const std::shared_ptr<void> origin = call->origin;
      if (origin != nullptr) static_cast<CallOrigin*>(origin.get())->Answer(std::move(call));
    }
    batch.clear();
  }
}

}  // namespace attn::server
