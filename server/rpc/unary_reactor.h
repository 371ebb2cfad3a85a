// The reactors of unary RPCs: one that goes through the engine, one that is answered at once.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/status_macros.h"
#include "server/rpc/completion.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/status_codec.h"
#include "server/rpc/wire_bytes.h"

namespace attn::server {

// The point in time of `clock` at which the caller stops waiting; kNever without a deadline.
Nanos DeadlineOf(const grpc::CallbackServerContext& rpc, const Clock& clock);

// "AttendRequest", for logs.
template <typename Method>
const std::string& NameOf() {
  return Method::Request::descriptor()->name();
}

// Finish is called exactly once: by Start when the request is refused, else by Answer. gRPC deletes
// the reactor through OnDone, which comes after Finish, so the call's origin may be a bare pointer.
template <typename Method>
class EngineReactor final : public grpc::ServerUnaryReactor, public CallOrigin {
 public:
  EngineReactor(RpcContext* context, grpc::ByteBuffer* response)
      : context_(context), response_(response) {}

  // gRPC thread.
  void Start(const grpc::CallbackServerContext& rpc, grpc::ByteBuffer request) {
    context_->border.received_bytes.Add(request.Length());
    if (!context_->gate.Enter()) return Refuse(DrainingError());
    const absl::Status accepted = Submit(rpc, std::move(request));
    if (accepted.ok()) return;
    context_->gate.Leave();
    Refuse(accepted);
  }

  // Any gRPC thread, after Start; the call may be settled already.
  void OnCancel() override {
    cancelled_->store(true, std::memory_order_release);
    context_->engine->queue().Poke();
  }

  void Answer(std::unique_ptr<Call> call) override {
    grpc::Status status = ToGrpcStatus(call->status);
    if (status.ok()) {
      typename Method::Response response;
      if (auto* attend = std::get_if<AttendResult>(&call->result)) attend->timing.input = input_;
      Method::Encode(*context_, refused_, call.get(), &response);
      *response_ = SerializeBytes(response);
      context_->NoteRefusedItems(refused_);
      context_->border.sent_bytes.Add(response_->Length());
    } else {
      context_->events->CallRefused(NameOf<Method>(), 0, call->status);
    }
    call.reset();
    context_->gate.Leave();
    Finish(std::move(status));
  }

  void OnDone() override { delete this; }

 private:
  void Refuse(const absl::Status& status) {
    context_->NoteRefused(NameOf<Method>(), 0, status);
    Finish(ToGrpcStatus(status));
  }

  absl::Status Submit(const grpc::CallbackServerContext& rpc, grpc::ByteBuffer request) {
    typename Method::Request message;
    ATTN_RETURN_IF_ERROR(ParseBytes(&request, context_->limits, &message));
    absl::StatusOr<Decoded> decoded = Method::Decode(&message, *context_);
    if (!decoded.ok()) return std::move(decoded).status();
    refused_ = std::move(decoded->refused);
    input_ = decoded->input;
    std::unique_ptr<Call> call = context_->MakeCall(
        std::move(decoded->request), {std::shared_ptr<void>(), AsOrigin()}, cancelled_);
    call->arrival = context_->clock->Now();
    call->deadline = DeadlineOf(rpc, *context_->clock);
    return context_->engine->Submit(std::move(call));
  }

  void* AsOrigin() { return static_cast<CallOrigin*>(this); }

  RpcContext* const context_;
  grpc::ByteBuffer* const response_;
  const std::shared_ptr<CancelFlag> cancelled_ = std::make_shared<CancelFlag>(false);
  std::vector<RefusedItem> refused_;
  Nanos input_ = 0;
};

template <typename Method>
grpc::ServerUnaryReactor* StartOnEngine(RpcContext* context, grpc::CallbackServerContext* rpc,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) {
  auto* reactor = new EngineReactor<Method>(context, response);
  reactor->Start(*rpc, *request);  // a buffer copy shares the bytes
  return reactor;
}

template <typename Method>
grpc::ServerUnaryReactor* AnswerAtOnce(const RpcContext& context, grpc::CallbackServerContext* rpc,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = rpc->DefaultReactor();
  grpc::ByteBuffer bytes(*request);
  context.border.received_bytes.Add(bytes.Length());
  typename Method::Request message;
  typename Method::Response answer;
  absl::Status status = ParseBytes(&bytes, context.limits, &message);
  if (status.ok()) status = Method::Answer(message, context, &answer);
  if (status.ok()) {
    *response = SerializeBytes(answer);
    context.border.sent_bytes.Add(response->Length());
  } else {
    context.NoteRefused(NameOf<Method>(), 0, status);
  }
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace attn::server
