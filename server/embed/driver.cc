#include "server/embed/driver.h"

#include <algorithm>
#include <utility>

#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::engine {
namespace {

thread_local const Driver::CallbackScope* innermost_callback = nullptr;

}  // namespace

Driver::CallbackScope::CallbackScope(const Driver* driver)
    : driver_(driver), outer_(std::exchange(innermost_callback, this)) {}

Driver::CallbackScope::~CallbackScope() { innermost_callback = outer_; }

// A thread in Run, Poll or Stop; lives on its stack. All members are under the driver's mutex.
class Driver::Waiter : public server::CallSink {
 public:
  explicit Waiter(Driver* driver) : driver_(driver) {}

  // Wakes under the lock: the waiter may be gone as soon as it is released.
  void Complete(std::unique_ptr<server::Call> call) override {
    std::lock_guard lock(driver_->mutex_);
    answer = std::move(call);
    wake.notify_one();
  }

  std::unique_ptr<server::Call> answer;
  std::condition_variable wake;

 private:
  Driver* const driver_;
};

Driver::Driver(server::Engine* engine, bool has_thread) : engine_(engine), has_thread_(has_thread) {
  if (has_thread_) engine_->Start();
}

bool Driver::InCallback() const {
  const CallbackScope* scope = innermost_callback;
  while (scope != nullptr && scope->driver_ != this) scope = scope->outer_;
  return scope != nullptr;
}

void Driver::Sleep(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
  sleepers_.push_back(&waiter);
  waiter.wake.wait(lock,
                   [&] { return waiter.answer != nullptr || (!has_thread_ && !turn_is_taken_); });
  sleepers_.erase(std::find(sleepers_.begin(), sleepers_.end(), &waiter));
}

void Driver::TakeTurn(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
  while (turn_is_taken_ && waiter.answer == nullptr) Sleep(lock, waiter);
  if (waiter.answer == nullptr) turn_is_taken_ = true;
}

void Driver::EndTurn() {
  turn_is_taken_ = false;
  if (!sleepers_.empty()) sleepers_.front()->wake.notify_one();
}

absl::StatusOr<std::unique_ptr<server::Call>> Driver::Run(std::unique_ptr<server::Call> call) {
  if (InCallback()) {
    return MakeError(Reason::kInvalid, "",
                     "got a blocking call in a callback of the same engine, want Submit");
  }
  Waiter waiter(this);
  call->sink = &waiter;
  ATTN_RETURN_IF_ERROR(engine_->Submit(std::move(call)));
  std::unique_lock lock(mutex_);
  while (has_thread_ && waiter.answer == nullptr) Sleep(lock, waiter);
  if (!has_thread_) {
    TakeTurn(lock, waiter);
    if (waiter.answer == nullptr) {
      lock.unlock();
      // Only this thread steps now, so only it writes the answer.
      while (waiter.answer == nullptr) engine_->StepByHand();
      lock.lock();
      EndTurn();
    } else if (!turn_is_taken_) {
      EndTurn();  // woken to take the turn, but not in need of it
    }
  }
  return std::move(waiter.answer);
}

bool Driver::Poll() {
  if (has_thread_ || InCallback()) return false;
  Waiter waiter(this);
  std::unique_lock lock(mutex_);
  TakeTurn(lock, waiter);
  lock.unlock();
  const bool any = engine_->StepByHand();
  lock.lock();
  EndTurn();
  return any;
}

void Driver::Stop() {
  ATTN_CHECK(!InCallback(), "an engine is stopped in its own callback");
  engine_->queue().Close();
  if (has_thread_) return engine_->Stop();
  Waiter waiter(this);
  std::unique_lock lock(mutex_);
  TakeTurn(lock, waiter);
  lock.unlock();
  engine_->Stop();
  lock.lock();
  EndTurn();
}

}  // namespace attn::engine
