#include "client/src/session.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/retry.h"
#include "client/src/wire_model.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

// `max_message_bytes` 0: the transport's defaults.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, uint64_t max_message_bytes) {
  grpc::ChannelArguments arguments;
  // A connection of its own, also beside other clients of this process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A restarted server is found again within the retries' backoff.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // How long one attempt may take, whatever its name says: a busy server shakes hands late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (max_message_bytes != 0) {
    // An answer may be larger than its request: a wider out_dtype, an LSE.
    const uint64_t bytes = std::min<uint64_t>(2 * max_message_bytes + (1 << 20), INT_MAX);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(bytes));
    arguments.SetMaxSendMessageSize(static_cast<int>(bytes));
  }
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Connect(const std::string& target,
                                                          const ClientOptions& options) {
  std::shared_ptr<Session> session(new Session(options));
  const auto greeting = MakeChannel(target, 0);
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::milliseconds(options.connect_timeout_ms);
  if (!greeting->WaitForConnected(deadline)) {
    return absl::UnavailableError(
        absl::StrCat("no connection to ", target, " within ", options.connect_timeout_ms, " ms"));
  }
  session->UseChannel(greeting);
  ATTN_ASSIGN_OR_RETURN(const ServerInfo info, session->Refresh());
  session->UseChannel(MakeChannel(target, info.limits.max_message_bytes));
  return session;
}

void Session::UseChannel(std::shared_ptr<grpc::Channel> channel) {
  server_ = v1::Server::NewStub(channel);
  models_ = v1::Models::NewStub(channel);
  sequences_ = v1::Sequences::NewStub(channel);
  generic_ = std::make_unique<grpc::GenericStub>(std::move(channel));
}

ServerInfo Session::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

uint64_t Session::epoch() const {
  const std::lock_guard lock(mutex_);
  return info_.server_epoch;
}

absl::StatusOr<ServerInfo> Session::Refresh() {
  v1::GetServerInfoResponse response;
  ATTN_RETURN_IF_ERROR(CallWithRetries([&](grpc::ClientContext* context) {
    return FromGrpc(server_->GetServerInfo(context, v1::GetServerInfoRequest(), &response));
  }));
  ServerInfo info = FromWire(response);
  const std::lock_guard lock(mutex_);
  info_ = info;
  return info;
}

absl::Status Session::CallWithRetries(
    const std::function<absl::Status(grpc::ClientContext*)>& attempt) {
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::milliseconds(options_.call_timeout_ms);
  for (uint32_t attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    const absl::Status status = attempt(&context);
    if (!CanRetry(status) || attempts >= options_.retry.max_attempts) return status;
    const std::chrono::milliseconds wait(
        BackoffMs(options_.retry, attempts, RetryAfterMsOf(status), RandomKey()));
    if (std::chrono::system_clock::now() + wait >= deadline) return status;
    std::this_thread::sleep_for(wait);
  }
}

}  // namespace attn::client
