#include "server/rpc/completion.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace attn::server {
namespace {

void Answer(std::unique_ptr<Call> call) {
  // The origin may own what the call lies in, so it outlives the call.
  const std::shared_ptr<void> origin = call->origin;
  if (origin != nullptr) static_cast<CallOrigin*>(origin.get())->Answer(std::move(call));
}

uint64_t ConnectionOf(const Call& call) {
  const auto* const origin = static_cast<const CallOrigin*>(call.origin.get());
  return origin == nullptr ? 0 : origin->connection();
}

}  // namespace

Completion::Completion() : thread_([this] { Run(); }) {}

Completion::~Completion() { Stop(); }

void Completion::Complete(std::unique_ptr<Call> call) { step_.push_back(std::move(call)); }

void Completion::CompleteLast(std::unique_ptr<Call> call) {
  step_.push_back(std::move(call));
  std::stable_sort(step_.begin(), step_.end(), [](const auto& a, const auto& b) {
    return ConnectionOf(*a) < ConnectionOf(*b);
  });
  std::unique_ptr<Call> only = Publish();
  if (only != nullptr) Answer(std::move(only));
}

std::unique_ptr<Call> Completion::Publish() {
  std::unique_ptr<Call> only;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    const bool is_alone = step_.size() == 1 && pending_.empty() && num_helping_ == 0;
    if (is_alone && step_.front()->num_bytes() <= kSmallBytes) {
      only = std::move(step_.front());
    } else {
      std::move(step_.begin(), step_.end(), std::back_inserter(pending_));
      any_pending_.store(true, std::memory_order_relaxed);
      wake = num_helping_ == 0 && std::exchange(sleeping_, false);
    }
  }
  step_.clear();
  if (wake) wake_.notify_one();
  return only;
}

void Completion::Help() {
  if (!any_pending_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  if (pending_.empty()) return;
  ++num_helping_;
  while (!pending_.empty()) AnswerRun(lock);
  if (--num_helping_ == 0 && stopping_) wake_.notify_one();
}

void Completion::AnswerRun(std::unique_lock<std::mutex>& lock) {
  Calls calls = TakeRun();
  lock.unlock();
  for (std::unique_ptr<Call>& call : calls) Answer(std::move(call));
  lock.lock();
}

void Completion::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// Calls from the front that share a connection.
Completion::Calls Completion::TakeRun() {
  Calls calls;
  while (!pending_.empty() && calls.size() < kLongestRun) {
    if (!calls.empty() && ConnectionOf(*pending_.front()) != ConnectionOf(*calls.front())) break;
    calls.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  if (pending_.empty()) any_pending_.store(false, std::memory_order_relaxed);
  return calls;
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
    AnswerRun(lock);
  }
}

}  // namespace attn::server
