// A whole server: engine, completion thread, services, health and reflection on one port.
//
//   std::unique_ptr<Server> server = Server::Start(options).value();
//   … server->port() …
//   server->Drain();
//
// No globals: two servers in one process do not see each other.
#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attn/attention/backend.h"
#include "server/core/engine.h"
#include "server/core/model_registry.h"
#include "server/log.h"
#include "server/options.h"
#include "server/rpc/completion.h"
#include "server/rpc/event_log.h"
#include "server/rpc/metrics_endpoint.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/services.h"
#include "server/rpc/watchdog.h"

namespace attn::server {

class Server {
 public:
  // Declares the models of options.models_file, then listens. An error names the option at fault.
  // `log` (null: nothing is logged) outlives the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       Log* log = nullptr);
  // The same on a device of the caller's.
  static absl::StatusOr<std::unique_ptr<Server>> StartOn(std::unique_ptr<Backend> backend,
                                                         const ServerOptions& options,
                                                         Log* log = nullptr);
  ~Server();  // drains

  // The port really listened on; 0 for a unix socket.
  int port() const { return port_; }
  // What a client connects to.
  const std::string& address() const { return address_; }
  // Null without options.metrics_listen. Answers until the server is destroyed.
  const MetricsEndpoint* metrics() const { return metrics_.get(); }

  // Says NOT_SERVING, refuses new work, answers what was accepted, ends streams and stops; takes
  // options.grace and half a second at most. Again: does nothing. One thread at a time.
  void Drain();

  Engine& engine() { return engine_; }

 private:
  Server(std::unique_ptr<Backend> backend, const ServerOptions& options, Log* log);
  absl::Status DeclareModels(const std::string& models_file);
  absl::Status Declare(v1::ModelSpec spec, absl::string_view path);
  absl::Status Listen();
  absl::Status ShowMetrics();
  void EndStreams(std::chrono::steady_clock::time_point deadline);

  const ServerOptions options_;
  EventLog events_;
  ModelRegistry registry_;
  Engine engine_;
  Completion completion_;
  RpcContext context_;
  ServerService server_service_{&context_};
  ModelsService models_service_{&context_};
  SequencesService sequences_service_{&context_};
  AttentionService attention_service_{&context_};
  AdminService admin_service_{&context_};
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<Watchdog> watchdog_;
  std::string address_;
  int port_ = 0;
  bool drained_ = false;
  std::unique_ptr<MetricsEndpoint> metrics_;
};

}  // namespace attn::server
