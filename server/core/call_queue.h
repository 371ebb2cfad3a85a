// The one lock between gRPC and the engine: a bounded queue, many producers, one consumer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "attn/base/clock.h"
#include "server/core/backlog.h"
#include "server/core/call.h"

namespace attn::server {

struct CallQueueLimits {
  size_t max_items = 65536;
  size_t max_bytes = size_t{1} << 30;
  // A call that would wait longer than this for its turn is refused; 0: none is.
  Nanos max_wait = 0;
  // The longest step, for estimating waits.
  Nanos chunk_time = 5 * kMillisecond;
};

// Items and bytes of a call count from Push until Release, that is, until it has been answered and
// not only until the engine has taken it.
class CallQueue {
 public:
  explicit CallQueue(const CallQueueLimits& limits)
      : limits_(limits), backlog_(limits.chunk_time) {}

  // Any thread. QUEUE_FULL with a retry hint when items or bytes run over, when the wait would be
  // longer than max_wait, or when work ahead would keep the call beyond its deadline: better
  // refused now than late. TOO_LARGE when the call alone is above a limit; DRAINING after Close.
  // The call is destroyed then. StreamEndedCall, CloseCall and RenewCall are always accepted: they
  // free resources.
  absl::Status Push(std::unique_ptr<Call> call);
  // Any thread: wakes the engine, because a cancel flag was set or it is time to stop.
  void Poke();
  // Any thread: refuse all further calls.
  void Close();

  // Engine thread: everything that has arrived, in arrival order; waits until there is something,
  // a Poke, or `deadline` (by the real clock; at once if it is past).
  std::vector<std::unique_ptr<Call>> WaitForCalls(Nanos deadline);
  // Engine thread, after WaitForCalls: what has arrived once there are `count` calls, a Poke, or
  // `deadline`. One wake-up however many calls come.
  std::vector<std::unique_ptr<Call>> WaitForMoreCalls(size_t count, Nanos deadline);
  // Any thread: calls have been answered.
  void Release(const std::vector<std::unique_ptr<Call>>& calls);

  struct Load {
    size_t items = 0;  // accepted and not answered
    size_t bytes = 0;
  };
  Load load() const;
  const CallQueueLimits& limits() const { return limits_; }

 private:
  absl::Status Admit(const Call& call, size_t items, size_t bytes) const;
  absl::Status CheckWait(const Call& call) const;

  const CallQueueLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Call>> calls_;
  Load load_;
  Backlog backlog_;
  // How many calls the engine sleeps for; 0 while it is awake, so that Push need not wake it.
  size_t wanted_ = 0;
  bool poked_ = false;
  bool closed_ = false;
};

}  // namespace attn::server
