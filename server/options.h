// All knobs of the server: defaults, ranges, and how they are read from a command line. Nothing
// else reads flags or the environment.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/engine.h"
#include "server/core/wire_limits.h"
#include "server/log.h"

namespace attn::server {

struct ServerOptions {
  // HOST:PORT (port 0: any free one) or unix:PATH.
  std::string listen = "127.0.0.1:50051";
  std::string backend = "auto";  // "cpu", "cuda", or "auto": cuda where there is a usable GPU
  int device = 0;                // of CUDA
  int num_threads = 0;           // of the CPU backend; 0: max(1, cores - 1)
  // HOST:PORT (port 0: any free one) of the metrics over HTTP; empty: none.
  std::string metrics_listen;
  // Whether attn.v1.Admin is offered: "on", "off", or "auto": where only this host can connect.
  std::string admin = "auto";
  std::string log_level = "info";  // as ParseLogLevel
  std::string models_file;         // textproto ModelsConfig; empty: none
  Nanos grace = 10 * kSecond;      // longest drain
  // A drain refuses new calls (DRAINING) for this long at least before it closes connections: a
  // call that meets a closing one ends CANCELLED, which tells a client nothing.
  Nanos linger = 200 * kMillisecond;
  // When a drain has nothing else left to wait for, a stream whose client takes no answer for this
  // long is cancelled: it would hold up the end until `grace` has passed.
  Nanos unread_time = kSecond;
  // The data path is NOT_SERVING when work waits this long without a step.
  Nanos stall_time = 10 * kSecond;
  EngineOptions engine;
  // Sequence counts and lengths that the engine knows too are taken from `engine`.
  WireLimits limits;

  bool OffersAdmin() const;
  // Every flag with its value.
  std::vector<LogField> Fields() const;
  // One line, "listen=127.0.0.1:50051 backend=auto …".
  std::string ToString() const;
};

// `arguments` without the program's name. INVALID naming the flag for one that is unknown, has no
// value, or a value out of its range.
absl::StatusOr<ServerOptions> ParseServerOptions(const std::vector<std::string>& arguments);

// What --help prints.
std::string ServerHelp();

}  // namespace attn::server
