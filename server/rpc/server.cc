#include "server/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attn/attention/cpu_backend.h"
#include "attn/attention/cuda_backend.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/rpc/model_codec.h"
#include "server/rpc/models_config.h"
#include "server/rpc/version.h"

namespace attn::server {
namespace {

// After the grace has passed: for the engine to answer DRAINING, and for gRPC to send it.
constexpr Nanos kStopTime = 200 * kMillisecond;

uint64_t NewEpoch() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random() | 1u;  // never 0, which means "not checked"
}

EngineOptions EngineOptionsOf(const ServerOptions& options) {
  EngineOptions engine = options.engine;
  engine.drain_grace = kStopTime;  // Drain waits for the calls itself
  return engine;
}

WireLimits LimitsOf(const ServerOptions& options) {
  WireLimits limits = options.limits;
  limits.max_sequence_len = options.engine.max_sequence_len;
  limits.max_open_sequences = options.engine.max_sequences;
  limits.remembered_appends = options.engine.remembered_appends;
  return limits;
}

// One stream may fill an eighth of the queue, so that a few greedy ones leave room for others.
uint64_t StreamBytes(const ServerOptions& options) {
  return std::max<uint64_t>(options.limits.max_message_bytes, options.engine.queue.max_bytes / 8);
}

// Waits for a call from outside the gRPC threads.
class BlockingOrigin : public CallOrigin {
 public:
  void Answer(std::unique_ptr<Call> call) override { done_.set_value(std::move(call)); }
  std::unique_ptr<Call> Wait() { return done_.get_future().get(); }

 private:
  std::promise<std::unique_ptr<Call>> done_;
};

void SetTransportLimits(const ServerOptions& options, grpc::ServerBuilder* builder) {
  const auto max_message = static_cast<int>(options.limits.max_message_bytes);
  builder->SetMaxReceiveMessageSize(max_message);
  builder->SetMaxSendMessageSize(-1);  // the codec limits answers
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1024);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 * 1024);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  builder->AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 64 * 1024);
  // A second server on the same port is an error, not a partner.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("attn-server");
  quota.Resize(options.engine.queue.max_bytes + 4 * options.limits.max_message_bytes +
               (size_t{256} << 20));
  builder->SetResourceQuota(quota);
}

std::chrono::steady_clock::time_point After(Nanos duration) {
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(duration);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const ServerOptions& options) {
  const bool wants_cuda = options.backend == "cuda" ||
                          (options.backend == "auto" && CheckCudaDevice(options.device).ok());
  if (!wants_cuda) return CreateCpuBackend({.num_threads = options.num_threads});
  auto backend = CreateCudaBackend({.device = options.device});
  if (backend.ok()) return backend;
  return MakeError(ReasonOf(backend.status()), "--backend", backend.status().message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Log* log) {
  ATTN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend(options));
  return StartOn(std::move(backend), options, log);
}

absl::StatusOr<std::unique_ptr<Server>> Server::StartOn(std::unique_ptr<Backend> backend,
                                                        const ServerOptions& options, Log* log) {
  if (options.engine.max_sequence_len > backend->max_kv_len()) {
    return MakeError(
        Reason::kInvalid, "--max-sequence-len",
        absl::StrCat("got ", options.engine.max_sequence_len, ", want at most ",
                     backend->max_kv_len(), ", the longest sequence of ", backend->device_name()));
  }
  std::unique_ptr<Server> server(new Server(std::move(backend), options, log));
  server->events_.Options(options.Fields());
  server->engine_.Start();
  ATTN_RETURN_IF_ERROR(server->DeclareModels(options.models_file));
  ATTN_RETURN_IF_ERROR(server->ShowMetrics());
  ATTN_RETURN_IF_ERROR(server->Listen());
  server->events_.Started(ServerVersion(), server->engine_.device_name(), server->address_);
  return server;
}

Server::Server(std::unique_ptr<Backend> backend, const ServerOptions& options, Log* log)
    : options_(options),
      events_(log),
      engine_(EngineOptionsOf(options), std::move(backend), &registry_, &Clock::Real(), &events_) {
  context_.limits = LimitsOf(options);
  context_.max_stream_bytes = StreamBytes(options);
  context_.server_epoch = NewEpoch();
  context_.registry = &registry_;
  context_.engine = &engine_;
  context_.completion = &completion_;
  context_.events = &events_;
}

Server::~Server() { Drain(); }

absl::Status Server::DeclareModels(const std::string& models_file) {
  if (models_file.empty()) return absl::OkStatus();
  ATTN_ASSIGN_OR_RETURN(std::vector<v1::ModelSpec> specs, ReadModelsFile(models_file));
  for (size_t i = 0; i < specs.size(); ++i) {
    ATTN_RETURN_IF_ERROR(
        Declare(std::move(specs[i]), absl::StrCat(models_file, ": models[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status Server::Declare(v1::ModelSpec spec, absl::string_view path) {
  const SupportsSpec supports = [this](const AttentionSpec& s) { return engine_.Supports(s); };
  ATTN_ASSIGN_OR_RETURN(
      ModelDefinition definition,
      DecodeModelSpec(std::move(spec), context_.limits, registry_, supports, path));
  const std::string name = definition.name;
  const auto origin = std::make_shared<BlockingOrigin>();
  ATTN_RETURN_IF_ERROR(engine_.queue().Push(context_.MakeCall(
      DeclareModelCall{std::move(definition)}, std::shared_ptr<CallOrigin>(origin))));
  const std::unique_ptr<Call> call = origin->Wait();
  if (!call->status.ok()) {
    return MakeError(ReasonOf(call->status), path, call->status.message());
  }
  context_.health.AddModel(name);
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetTransportLimits(options_, &builder);
  int port = 0;
  builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&server_service_);
  builder.RegisterService(&models_service_);
  builder.RegisterService(&sequences_service_);
  builder.RegisterService(&attention_service_);
  if (options_.OffersAdmin()) builder.RegisterService(&admin_service_);
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr || port == 0) {
    return MakeError(Reason::kInvalid, "--listen",
                     absl::StrCat("got ", options_.listen,
                                  ", which cannot be listened on, want a free HOST:PORT or "
                                  "unix:PATH"));
  }
  const bool is_unix = absl::StartsWith(options_.listen, "unix:");
  port_ = is_unix ? 0 : port;
  address_ = is_unix
                 ? options_.listen
                 : absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port);
  context_.health.Attach(grpc_server_->GetHealthCheckService());
  watchdog_ = std::make_unique<Watchdog>(&context_, options_.stall_time);
  return absl::OkStatus();
}

absl::Status Server::ShowMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  ATTN_ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Start(options_.metrics_listen, &context_));
  return absl::OkStatus();
}

// Streams that have all their answers end now, and what closes with them is closed.
void Server::EndStreams(std::chrono::steady_clock::time_point deadline) {
  for (const auto& stream : context_.streams.All()) stream->EndForDrain();
  while (!context_.streams.WaitUntilEmpty(std::min(After(options_.unread_time), deadline))) {
    if (std::chrono::steady_clock::now() >= deadline) return;
    for (const auto& stream : context_.streams.All()) stream->CancelIfUnread();
  }
}

void Server::Drain() {
  if (std::exchange(drained_, true)) return;
  const Nanos began = context_.clock->Now();
  const auto deadline = After(options_.grace);
  const auto linger_end = std::min(After(options_.linger), deadline);
  watchdog_.reset();
  context_.health.Drain();
  const bool has_listened = grpc_server_ != nullptr;
  if (has_listened) events_.DrainBegan(context_.gate.size(), context_.streams.size());
  context_.gate.Close();
  for (const auto& stream : context_.streams.All()) stream->AnnounceDrain();
  context_.gate.WaitUntilIdle(deadline);
  EndStreams(deadline);
  const size_t unanswered = context_.gate.size();
  const size_t unfinished_streams = context_.streams.size();
  engine_.Stop();
  completion_.Stop();
  if (has_listened) {
    std::this_thread::sleep_until(linger_end);
    grpc_server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(kStopTime));
    grpc_server_->Wait();
    events_.DrainEnded(context_.clock->Now() - began, unanswered, unfinished_streams);
  }
}

}  // namespace attn::server
