// Proves that the data path makes progress: work that waits while the engine's heartbeat stands
// still turns the health of "attn.v1.Attention" to NOT_SERVING until the heart beats again; a
// device that is lost does so for good.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "attn/base/clock.h"
#include "server/rpc/rpc_context.h"

namespace attn::server {

class Watchdog {
 public:
  // `context` outlives the watchdog.
  Watchdog(RpcContext* context, Nanos stall_time);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();
  void Look();

  RpcContext* const context_;
  const Nanos stall_time_;
  uint64_t last_heartbeat_ = 0;
  Nanos last_progress_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace attn::server
