// What client, streams and lease keepers share: the channel, the server's facts, blocking calls
// with retries.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/client/options.h"
#include "attn/client/server_info.h"
#include "attn/v1/attention.grpc.pb.h"

namespace attn::client {

class Session {
 public:
  static absl::StatusOr<std::shared_ptr<Session>> Connect(const std::string& target,
                                                          const ClientOptions& options);

  ServerInfo info() const;
  uint64_t epoch() const;
  absl::StatusOr<ServerInfo> Refresh();

  // Calls `attempt` until it succeeds, fails for good, or attempts or time are used up; waits in
  // between. The context it gets has the deadline set.
  absl::Status CallWithRetries(const std::function<absl::Status(grpc::ClientContext*)>& attempt);

  v1::Server::Stub& server() { return *server_; }
  v1::Models::Stub& models() { return *models_; }
  v1::Sequences::Stub& sequences() { return *sequences_; }
  grpc::GenericStub& generic() { return *generic_; }

 private:
  explicit Session(const ClientOptions& options) : options_(options) {}
  void UseChannel(std::shared_ptr<grpc::Channel> channel);

  const ClientOptions options_;
  std::unique_ptr<v1::Server::Stub> server_;
  std::unique_ptr<v1::Models::Stub> models_;
  std::unique_ptr<v1::Sequences::Stub> sequences_;
  std::unique_ptr<grpc::GenericStub> generic_;
  mutable std::mutex mutex_;
  ServerInfo info_;  // guarded by mutex_
};

}  // namespace attn::client
