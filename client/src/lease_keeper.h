// The background heartbeat of one owner's lease.
#pragma once

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
  bool stopped = false;
  uint64_t renewals = 0;
  absl::Status last = absl::OkStatus();

  // Sends one renewal; its answer schedules the next.
  void Beat();
  void OnAnswer(const absl::Status& status, const Renewal& renewal);
};

}  // namespace attn::client
