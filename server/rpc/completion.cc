#include "server/rpc/completion.h"

#include <utility>

namespace attn::server {
namespace {

void Answer(std::unique_ptr<Call> call) {
  // The origin may own what the call lies in, so it outlives the call.
  const std::shared_ptr<void> origin = call->origin;
  if (origin != nullptr) static_cast<CallOrigin*>(origin.get())->Answer(std::move(call));
}

}  // namespace

Completion::Completion() : thread_([this] { Run(); }) {}

Completion::~Completion() { Stop(); }

void Completion::Complete(std::unique_ptr<Call> call) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(call));
}

void Completion::CompleteLast(std::unique_ptr<Call> call) {
  std::unique_ptr<Call> only;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(call));
    if (num_helping_ > 0) return;
    if (pending_.size() == 1 && pending_.front()->num_bytes() <= kSmallBytes) {
      only = TakeFirst();
    } else {
      wake = std::exchange(sleeping_, false);
    }
  }
  if (only != nullptr) Answer(std::move(only));
  if (wake) wake_.notify_one();
}

void Completion::Help() {
  std::unique_lock lock(mutex_);
  if (pending_.empty()) return;
  ++num_helping_;
  while (!pending_.empty()) {
    std::unique_ptr<Call> call = TakeFirst();
    lock.unlock();
    Answer(std::move(call));
    lock.lock();
  }
  if (--num_helping_ == 0 && stopping_) wake_.notify_one();
}

void Completion::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<Call> Completion::TakeFirst() {
  std::unique_ptr<Call> call = std::move(pending_.front());
  pending_.pop_front();
  return call;
}

void Completion::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (pending_.empty() || num_helping_ > 0) {
      if (stopping_ && pending_.empty() && num_helping_ == 0) return;
      sleeping_ = true;
      wake_.wait(lock);
      sleeping_ = false;
      continue;
    }
    std::unique_ptr<Call> call = TakeFirst();
    lock.unlock();
    Answer(std::move(call));
    lock.lock();
  }
}

}  // namespace attn::server
