#include "tests/e2e/health_watcher.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <utility>

namespace attn::test {
namespace {

grpc::ByteBuffer RequestFor(const std::string& service) {
  std::string request;
  if (!service.empty()) {
    request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  }
  const grpc::Slice slice(request);
  return grpc::ByteBuffer(&slice, 1);
}

// 0 for a message that is none.
int StatusIn(const grpc::ByteBuffer& response) {
  grpc::Slice flat;
  if (!response.DumpToSingleSlice(&flat).ok() || flat.size() != 2) return 0;
  return flat.begin()[1];
}

}  // namespace

int HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  const grpc::Status status = grpc::internal::BlockingUnaryCall(channel.get(), method, &context,
                                                                RequestFor(service), &response);
  return status.ok() ? StatusIn(response) : -status.error_code();
}

HealthWatcher::HealthWatcher(std::shared_ptr<grpc::Channel> channel, const std::string& service)
    : channel_(std::move(channel)), thread_([this, service] { Watch(service); }) {}

HealthWatcher::~HealthWatcher() {
  context_.TryCancel();
  thread_.join();
}

void HealthWatcher::Watch(const std::string& service) {
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Watch",
                                         grpc::internal::RpcMethod::SERVER_STREAMING);
  const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader(
      grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
          channel_.get(), method, &context_, RequestFor(service)));
  grpc::ByteBuffer response;
  while (reader->Read(&response)) {
    const int status = StatusIn(response);
    const std::lock_guard lock(mutex_);
    status_ = status;
    if (status >= 0 && status < 4) since_[status] = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  reader->Finish().IgnoreError();
}

bool HealthWatcher::WaitFor(int status, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return status_ == status; });
}

std::chrono::steady_clock::time_point HealthWatcher::Since(int status) const {
  const std::lock_guard lock(mutex_);
  return since_[status];
}

}  // namespace attn::test
