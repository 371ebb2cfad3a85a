#include "tools/attnctl/server_link.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attn/base/status_macros.h"

namespace attn::ctl {
namespace {

// The messages of grpc.health.v1, whose proto file Debian does not ship: a request is field 1, the
// service; an answer is field 1, the state, of which 1 is SERVING.
constexpr size_t kLongestService = 127;  // its length is then one byte
constexpr char kServing[] = "\x08\x01";

std::string HealthRequest(const std::string& service) {
  return absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
}

}  // namespace

ServerLink::ServerLink(const std::string& address, std::chrono::milliseconds timeout)
    : address_(address), timeout_(timeout), channel_([&] {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(-1);
        return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
      }()) {}

void ServerLink::SetTimeout(grpc::ClientContext* context) const {
  context->set_deadline(std::chrono::system_clock::now() + timeout_);
}

absl::Status ServerLink::Explain(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string text = status.error_message();
  if (code == absl::StatusCode::kUnavailable) {
    text = absl::StrCat("no server answers (", text, "); is it running, and is --address right?");
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    text = absl::StrCat("no answer within ", timeout_.count(), " ms; try a longer --timeout-ms");
  } else if (code == absl::StatusCode::kUnimplemented) {
    text =
        "the server does not offer this; it has to be started with --admin=on, or with a "
        "--listen that only its own host reaches";
  }
  return absl::Status(code, absl::StrCat(address_, ": ", text));
}

template <typename Service, typename Request, typename Response>
absl::Status ServerLink::Ask(grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                             const Request& request, Response* response) const {
  grpc::ClientContext context;
  SetTimeout(&context);
  return Explain((Service::NewStub(channel_).get()->*method)(&context, request, response));
}

absl::StatusOr<v1::GetServerInfoResponse> ServerLink::Info() {
  v1::GetServerInfoResponse response;
  ATTN_RETURN_IF_ERROR(
      Ask<v1::Server>(&v1::Server::Stub::GetServerInfo, v1::GetServerInfoRequest(), &response));
  return response;
}

absl::StatusOr<v1::ListModelsResponse> ServerLink::Models() {
  v1::ListModelsResponse all;
  v1::ListModelsRequest request;
  do {
    v1::ListModelsResponse page;
    ATTN_RETURN_IF_ERROR(Ask<v1::Models>(&v1::Models::Stub::ListModels, request, &page));
    request.set_page_token(page.next_page_token());
    for (v1::ModelInfo& model : *page.mutable_models()) *all.add_models() = std::move(model);
  } while (!request.page_token().empty());
  return all;
}

absl::StatusOr<v1::GetModelResponse> ServerLink::Model(const std::string& name) {
  v1::GetModelRequest request;
  request.set_name(name);
  v1::GetModelResponse response;
  ATTN_RETURN_IF_ERROR(Ask<v1::Models>(&v1::Models::Stub::GetModel, request, &response));
  return response;
}

absl::StatusOr<v1::ListSequencesResponse> ServerLink::Sequences(v1::ListSequencesRequest request,
                                                                uint32_t limit) {
  v1::ListSequencesResponse all;
  do {
    request.set_max_sequences(limit - static_cast<uint32_t>(all.sequences_size()));
    v1::ListSequencesResponse page;
    ATTN_RETURN_IF_ERROR(Ask<v1::Admin>(&v1::Admin::Stub::ListSequences, request, &page));
    request.set_page_token(page.next_page_token());
    all.set_next_page_token(page.next_page_token());
    for (v1::SequenceSummary& sequence : *page.mutable_sequences()) {
      *all.add_sequences() = std::move(sequence);
    }
  } while (!request.page_token().empty() && static_cast<uint32_t>(all.sequences_size()) < limit);
  return all;
}

absl::StatusOr<v1::GetStatsResponse> ServerLink::Stats() {
  v1::GetStatsResponse response;
  ATTN_RETURN_IF_ERROR(
      Ask<v1::Admin>(&v1::Admin::Stub::GetStats, v1::GetStatsRequest(), &response));
  return response;
}

absl::StatusOr<bool> ServerLink::IsServing(const std::string& service) {
  if (service.size() > kLongestService) {
    return absl::InvalidArgumentError(
        absl::StrCat("the service's name has ", service.size(), " bytes, want at most 127"));
  }
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  SetTimeout(&context);
  grpc::CompletionQueue queue;
  const grpc::Slice request(HealthRequest(service));
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&request, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (status.error_code() == grpc::NOT_FOUND) {
    return absl::NotFoundError(absl::StrCat(address_, ": knows no service \"", service, "\""));
  }
  ATTN_RETURN_IF_ERROR(Explain(status));
  grpc::Slice flat;
  if (!answer.DumpToSingleSlice(&flat).ok()) return absl::InternalError("unreadable answer");
  return std::string(reinterpret_cast<const char*>(flat.begin()), flat.size()) == kServing;
}

}  // namespace attn::ctl
