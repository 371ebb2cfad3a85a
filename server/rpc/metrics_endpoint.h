// The metrics of a server over HTTP, in Prometheus' text format, at /metrics. On threads of its
// own: it answers while the server drains and while the engine stands still, and holds up nobody.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/rpc_context.h"

namespace attn::server {

class MetricsEndpoint {
 public:
  // Listens on HOST:PORT (port 0: any free one). `context` outlives the
  // endpoint. INVALID naming --metrics-listen when that cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& listen,
                                                                const RpcContext* context);
  ~MetricsEndpoint();

  // "127.0.0.1:9464", with the port really listened on.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

 private:
  class Exposition;
  explicit MetricsEndpoint(std::unique_ptr<Exposition> exposition);

  std::unique_ptr<Exposition> exposition_;
  std::string address_;
  int port_ = 0;
};

}  // namespace attn::server
