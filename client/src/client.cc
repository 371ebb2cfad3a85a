#include "attn/client/client.h"

#include <grpcpp/support/byte_buffer.h>

#include <future>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/attend_codec.h"
#include "client/src/lease_keeper.h"
#include "client/src/retry.h"
#include "client/src/session.h"
#include "client/src/stream_core.h"
#include "client/src/wire_model.h"
#include "client/src/wire_sequence.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

// One blocking unary call by a generated stub's method, with retries.
template <typename Stub, typename Request, typename Response>
absl::Status Call(Session& session, Stub& stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response* response) {
  return session.CallWithRetries([&](grpc::ClientContext* context) {
    return FromGrpc((stub.*method)(context, request, response));
  });
}

grpc::Status CallAttend(Session& session, grpc::ClientContext* context, const grpc::Slice& message,
                        grpc::ByteBuffer* answer) {
  const grpc::ByteBuffer request(&message, 1);
  // Shared: the callback's thread may still be inside set_value when this one goes on.
  auto done = std::make_shared<std::promise<grpc::Status>>();
  session.generic().UnaryCall(context, "/attn.v1.Attention/Attend", grpc::StubOptions(), &request,
                              answer, [done](grpc::Status status) { done->set_value(status); });
  return done->get_future().get();
}

absl::StatusOr<AttendResult> AttendPartOnce(Session& session, grpc::ClientContext* context,
                                            const grpc::Slice& message, size_t num_items) {
  grpc::ByteBuffer answer;
  ATTN_RETURN_IF_ERROR(FromGrpc(CallAttend(session, context, message, &answer)));
  v1::AttendResponse response;
  if (!ParseMessage(&answer, &response)) {
    return MakeError(Reason::kInternal, "", "the server's answer is no attn.v1.AttendResponse");
  }
  return DecodeAttend(std::move(response), num_items);
}

}  // namespace

Client::Client(std::shared_ptr<Session> session) : session_(std::move(session)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target,
                                                        ClientOptions options) {
  ATTN_ASSIGN_OR_RETURN(auto session, Session::Connect(target, options));
  return std::unique_ptr<Client>(new Client(std::move(session)));
}

ServerInfo Client::info() const { return session_->info(); }
absl::StatusOr<ServerInfo> Client::Refresh() { return session_->Refresh(); }

absl::StatusOr<ModelInfo> Client::DeclareModel(const ModelSpec& spec) {
  v1::DeclareModelRequest request;
  ToWire(spec, request.mutable_spec());
  v1::DeclareModelResponse response;
  ATTN_RETURN_IF_ERROR(
      Call(*session_, session_->models(), &v1::Models::Stub::DeclareModel, request, &response));
  ModelInfo info = FromWire(response.model());
  info.already_declared = response.already_declared();
  return info;
}

absl::StatusOr<ModelInfo> Client::GetModel(const std::string& name) {
  v1::GetModelRequest request;
  request.set_name(name);
  v1::GetModelResponse response;
  ATTN_RETURN_IF_ERROR(
      Call(*session_, session_->models(), &v1::Models::Stub::GetModel, request, &response));
  return FromWire(response.model());
}

absl::StatusOr<std::vector<ModelInfo>> Client::ListModels() {
  std::vector<ModelInfo> models;
  v1::ListModelsRequest request;
  do {
    v1::ListModelsResponse response;
    ATTN_RETURN_IF_ERROR(
        Call(*session_, session_->models(), &v1::Models::Stub::ListModels, request, &response));
    for (const v1::ModelInfo& model : response.models()) models.push_back(FromWire(model));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return models;
}

absl::Status Client::RemoveModel(const std::string& name) {
  v1::RemoveModelRequest request;
  request.set_name(name);
  v1::RemoveModelResponse response;
  return Call(*session_, session_->models(), &v1::Models::Stub::RemoveModel, request, &response);
}

absl::StatusOr<OpenResult> Client::OpenSequences(const OpenRequest& request) {
  v1::OpenSequencesResponse response;
  ATTN_RETURN_IF_ERROR(Call(*session_, session_->sequences(), &v1::Sequences::Stub::OpenSequences,
                            ToWire(request), &response));
  return FromWire(response, request.num_sequences);
}

absl::StatusOr<SequenceId> Client::Open(const std::string& model, const std::string& owner,
                                        uint32_t lease_ms) {
  OpenRequest request;
  request.model = model;
  request.owner = owner;
  request.lease_ms = lease_ms;
  ATTN_ASSIGN_OR_RETURN(OpenResult result, OpenSequences(request));
  return std::move(result.sequences[0]);
}

absl::StatusOr<ForkResult> Client::Fork(const std::vector<ForkItem>& items) {
  v1::ForkSequencesResponse response;
  ATTN_RETURN_IF_ERROR(Call(*session_, session_->sequences(), &v1::Sequences::Stub::ForkSequences,
                            ToWire(items, session_->epoch()), &response));
  return FromWire(response, items);
}

absl::Status Client::Reorder(const ReorderRequest& request) {
  v1::ReorderSequencesResponse response;
  return Call(*session_, session_->sequences(), &v1::Sequences::Stub::ReorderSequences,
              ToWire(request, session_->epoch()), &response);
}

absl::StatusOr<TruncateResult> Client::Truncate(const std::vector<TruncateItem>& items) {
  v1::TruncateSequencesResponse response;
  ATTN_RETURN_IF_ERROR(Call(*session_, session_->sequences(),
                            &v1::Sequences::Stub::TruncateSequences,
                            ToWire(items, session_->epoch()), &response));
  return FromWire(response, items.size());
}

absl::StatusOr<std::vector<absl::Status>> Client::Close(const std::vector<SequenceId>& sequences) {
  v1::CloseSequencesResponse response;
  ATTN_RETURN_IF_ERROR(Call(*session_, session_->sequences(), &v1::Sequences::Stub::CloseSequences,
                            CloseToWire(sequences, session_->epoch()), &response));
  return FromWire(response, sequences.size());
}

absl::StatusOr<std::vector<absl::StatusOr<SequenceInfo>>> Client::Describe(
    const std::vector<SequenceId>& sequences) {
  v1::DescribeSequencesRequest request;
  request.set_server_epoch(session_->epoch());
  for (const SequenceId sequence : sequences) request.add_sequence_ids(sequence.value);
  v1::DescribeSequencesResponse response;
  ATTN_RETURN_IF_ERROR(Call(*session_, session_->sequences(),
                            &v1::Sequences::Stub::DescribeSequences, request, &response));
  return FromWire(response, sequences.size());
}

absl::StatusOr<Renewal> Client::RenewLease(const std::string& owner, uint32_t lease_ms) {
  v1::RenewLeaseRequest request;
  request.set_server_epoch(session_->epoch());
  request.set_owner(owner);
  request.set_lease_ms(lease_ms);
  v1::RenewLeaseResponse response;
  ATTN_RETURN_IF_ERROR(
      Call(*session_, session_->sequences(), &v1::Sequences::Stub::RenewLease, request, &response));
  return FromWire(response);
}

std::unique_ptr<LeaseKeeper> Client::KeepLease(
    const std::string& owner, uint32_t lease_ms,
    std::function<void(const std::vector<SequenceId>&)> on_lost) {
  auto state = std::make_shared<LeaseKeeper::State>();
  state->session = session_;
  state->owner = owner;
  state->lease_ms = lease_ms;
  state->on_lost = std::move(on_lost);
  return std::unique_ptr<LeaseKeeper>(new LeaseKeeper(std::move(state)));
}

absl::StatusOr<AttendResult> Client::Attend(const AttendRequest& request) {
  ATTN_ASSIGN_OR_RETURN(const std::vector<AttendPart> parts,
                        SplitRequest(request, session_->info().limits));
  AttendResult total;
  for (const AttendPart& part : parts) {
    ATTN_ASSIGN_OR_RETURN(const grpc::Slice message,
                          EncodePart(request, part, session_->epoch(), Framing::kUnary));
    AttendResult result;
    const absl::Status failure =
        session_->CallWithRetries([&](grpc::ClientContext* context) -> absl::Status {
          result = AttendResult();
          ATTN_ASSIGN_OR_RETURN(result,
                                AttendPartOnce(*session_, context, message, part.items.size()));
          return PassingFailure(result);
        });
    // Items that failed to the last attempt are reported one by one.
    if (!failure.ok() && result.items.empty()) return failure;
    if (part.is_piece) ATTN_RETURN_IF_ERROR(result.FirstError());
    MergePart(part, std::move(result), &total);
  }
  return total;
}

std::unique_ptr<Stream> Client::OpenStream(StreamOptions options) {
  return std::unique_ptr<Stream>(new Stream(std::make_shared<StreamCore>(session_, options)));
}

}  // namespace attn::client
