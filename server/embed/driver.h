// Who steps the engine: its own thread, or whichever caller waits for an answer.
//
// In the second case at most one thread has the turn. It steps until its own answer is there, then
// wakes one of those who wait; answers of the others it hands over as they come. An uncontended
// call never sleeps and wakes nobody.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/call.h"
#include "server/core/engine.h"

namespace attn::engine {

class Driver {
 public:
  // `engine` outlives the driver and is not started yet.
  Driver(server::Engine* engine, bool has_thread);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Any thread. Submits the call and returns it once it is answered. INVALID in a callback.
  absl::StatusOr<std::unique_ptr<server::Call>> Run(std::unique_ptr<server::Call> call);
  // One step, unless the engine has a thread. False in a callback.
  bool Poll();
  // Drains and stops the engine. REQUIRES: not in a callback.
  void Stop();

  // While one lives, this thread is in a callback of the driver.
  class CallbackScope {
   public:
    explicit CallbackScope(const Driver* driver);
    ~CallbackScope();
    CallbackScope(const CallbackScope&) = delete;
    CallbackScope& operator=(const CallbackScope&) = delete;

   private:
    friend class Driver;
    const Driver* const driver_;
    const CallbackScope* const outer_;
  };

 private:
  class Waiter;

  bool InCallback() const;
  // With the lock held, which is released meanwhile.
  void TakeTurn(std::unique_lock<std::mutex>& lock, Waiter& waiter);
  void EndTurn();
  void Sleep(std::unique_lock<std::mutex>& lock, Waiter& waiter);

  server::Engine* const engine_;
  const bool has_thread_;
  std::mutex mutex_;
  bool turn_is_taken_ = false;
  std::vector<Waiter*> sleepers_;
};

}  // namespace attn::engine
