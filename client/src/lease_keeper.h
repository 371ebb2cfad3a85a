// The background heartbeat of one owner's lease.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attn/client/client.h"
#include "client/src/session.h"

namespace attn::client {

struct LeaseKeeper::State : std::enable_shared_from_this<State> {
  std::shared_ptr<Session> session;
  std::string owner;
  uint32_t lease_ms = 0;  // as asked for
  std::function<void(const std::vector<SequenceId>&)> on_lost;

  std::mutex mutex;  // guards what follows
  std::condition_variable idle;
  bool stopped = false;
  grpc::ClientContext* call = nullptr;  // of the renewal in flight
  bool busy = false;                    // a renewal is in flight, or its answer is being handled
  uint64_t renewals = 0;
  absl::Status last = absl::OkStatus();

  // Sends one renewal; its answer schedules the next.
  void Beat();
  void OnAnswer(const absl::Status& status, const Renewal& renewal);
};

}  // namespace attn::client
