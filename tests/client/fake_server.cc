#include "tests/client/fake_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <set>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/v1/rpc_status.pb.h"

namespace attn::client {

v1::Status WireError(Reason reason, const std::string& field, const std::string& message,
                     uint32_t retry_after_ms) {
  v1::Status status;
  status.set_code(static_cast<int>(CodeOf(reason)));
  status.set_reason(static_cast<v1::Reason>(reason));
  status.set_field(field);
  status.set_message(absl::StrCat(field, ": ", message));
  status.set_retry_after_ms(retry_after_ms);
  return status;
}

grpc::Status GrpcError(const v1::Status& status) {
  v1::RpcStatus details;
  details.set_code(status.code());
  details.set_message(status.message());
  details.add_details()->PackFrom(status);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(),
                      details.SerializeAsString());
}

class FakeServer::AttentionService : public v1::Attention::Service {
 public:
  explicit AttentionService(FakeServer* fake) : fake_(fake) {}

  grpc::Status Attend(grpc::ServerContext*, const v1::AttendRequest* request,
                      v1::AttendResponse* response) override {
    const std::lock_guard lock(fake_->mutex_);
    const int nth = fake_->NoteAttendLocked(*request);
    if (fake_->faults_.refuse) {
      const v1::Status refusal = fake_->faults_.refuse(nth);
      if (refusal.code() != 0) return GrpcError(refusal);
    }
    *response = fake_->AttendLocked(*request, nth);
    if (fake_->faults_.drop_answer && fake_->faults_.drop_answer(nth)) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "dropped");
    }
    return grpc::Status::OK;
  }

  grpc::Status AttendStream(grpc::ServerContext*,
                            grpc::ServerReaderWriter<v1::AttendStreamResponse,
                                                     v1::AttendStreamRequest>* stream) override {
    {
      const std::lock_guard lock(fake_->mutex_);
      ++fake_->num_streams_;
    }
    std::set<uint64_t> held;
    v1::AttendStreamRequest message;
    while (stream->Read(&message)) {
      v1::AttendStreamResponse response;
      response.set_request_id(message.request_id());
      if (message.has_cancel()) AnswerHeld(message.cancel(), &held, stream);
      const Outcome outcome = Handle(message, &response);
      if (outcome == Outcome::kDrop) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "dropped");
      }
      if (outcome == Outcome::kHold) {
        held.insert(message.request_id());
        continue;
      }
      stream->Write(response);
      if (response.flow().draining()) return grpc::Status::OK;
    }
    return grpc::Status::OK;
  }

 private:
  enum class Outcome { kAnswer, kDrop, kHold };

  static void AnswerHeld(
      const v1::CancelRequest& cancel, std::set<uint64_t>* held,
      grpc::ServerReaderWriter<v1::AttendStreamResponse, v1::AttendStreamRequest>* stream) {
    for (const uint64_t id : cancel.request_ids()) {
      if (held->erase(id) == 0) continue;
      v1::AttendStreamResponse response;
      response.set_request_id(id);
      *response.mutable_status() = WireError(Reason::kCancelled, "", "cancelled");
      stream->Write(response);
    }
  }

  Outcome Handle(const v1::AttendStreamRequest& message, v1::AttendStreamResponse* response) {
    const std::lock_guard lock(fake_->mutex_);
    fake_->stream_messages_.push_back(message);
    if (fake_->faults_.flow) fake_->faults_.flow(response->mutable_flow());
    switch (message.request_case()) {
      case v1::AttendStreamRequest::kAttend:
        return HandleAttend(message.attend(), response);
      case v1::AttendStreamRequest::kOpen:
        *response->mutable_open() = fake_->OpenLocked(message.open());
        return Outcome::kAnswer;
      case v1::AttendStreamRequest::kClose:
        response->mutable_close();
        return Outcome::kAnswer;
      case v1::AttendStreamRequest::kCancel:
        response->mutable_cancel();
        return Outcome::kAnswer;
      default:
        *response->mutable_status() = WireError(Reason::kUnsupported, "request", "not faked");
        return Outcome::kAnswer;
    }
  }

  Outcome HandleAttend(const v1::AttendRequest& request, v1::AttendStreamResponse* response) {
    const int nth = fake_->NoteAttendLocked(request);
    const Faults& faults = fake_->faults_;
    if (faults.hold && faults.hold(nth)) return Outcome::kHold;
    if (faults.refuse) {
      const v1::Status refusal = faults.refuse(nth);
      if (refusal.code() != 0) {
        *response->mutable_status() = refusal;
        return Outcome::kAnswer;
      }
    }
    *response->mutable_attend() = fake_->AttendLocked(request, nth);
    return faults.drop_answer && faults.drop_answer(nth) ? Outcome::kDrop : Outcome::kAnswer;
  }

  FakeServer* const fake_;
};

class FakeServer::SequencesService : public v1::Sequences::Service {
 public:
  explicit SequencesService(FakeServer* fake) : fake_(fake) {}

  grpc::Status OpenSequences(grpc::ServerContext*, const v1::OpenSequencesRequest* request,
                             v1::OpenSequencesResponse* response) override {
    const std::lock_guard lock(fake_->mutex_);
    fake_->request_keys_.push_back(request->request_key());
    const int nth = static_cast<int>(fake_->request_keys_.size()) - 1;
    *response = fake_->OpenLocked(*request);
    if (fake_->faults_.drop_answer && fake_->faults_.drop_answer(nth)) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "dropped");
    }
    return grpc::Status::OK;
  }

  grpc::Status CloseSequences(grpc::ServerContext*, const v1::CloseSequencesRequest*,
                              v1::CloseSequencesResponse*) override {
    return grpc::Status::OK;
  }

  grpc::Status DescribeSequences(grpc::ServerContext*, const v1::DescribeSequencesRequest* request,
                                 v1::DescribeSequencesResponse* response) override {
    const std::lock_guard lock(fake_->mutex_);
    for (int i = 0; i < request->sequence_ids_size(); ++i) {
      v1::SequenceInfo* info = response->add_sequences();
      if (request->server_epoch() != fake_->epoch_) {
        v1::ItemError* error = response->add_errors();
        error->set_item(static_cast<uint32_t>(i));
        *error->mutable_status() =
            WireError(Reason::kStaleSequence, "server_epoch", "of another epoch");
        continue;
      }
      info->set_sequence_id(request->sequence_ids(i));
    }
    return grpc::Status::OK;
  }

  grpc::Status RenewLease(grpc::ServerContext*, const v1::RenewLeaseRequest* request,
                          v1::RenewLeaseResponse* response) override {
    const std::lock_guard lock(fake_->mutex_);
    ++fake_->num_renewals_;
    response->set_lease_ms(request->lease_ms());
    response->set_num_sequences(1);
    if (fake_->num_renewals_ == 2) response->add_lost_sequence_ids(123);
    return grpc::Status::OK;
  }

 private:
  FakeServer* const fake_;
};

class FakeServer::ModelsService : public v1::Models::Service {
 public:
  grpc::Status DeclareModel(grpc::ServerContext*, const v1::DeclareModelRequest* request,
                            v1::DeclareModelResponse* response) override {
    if (request->spec().name() == "taken") {
      return GrpcError(WireError(Reason::kModelExists, "spec.page_size", "got 16, want 32"));
    }
    *response->mutable_model()->mutable_spec() = request->spec();
    response->mutable_model()->set_kv_bytes_per_token(42);
    return grpc::Status::OK;
  }

  // Three models on pages of one, the second of them empty.
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override {
    const std::string& page = request->page_token();
    if (page != "1") response->add_models()->mutable_spec()->set_name("model" + page);
    if (page != "3") {
      response->set_next_page_token(page.empty() ? "1" : std::to_string(std::stoi(page) + 1));
    }
    return grpc::Status::OK;
  }
};

class FakeServer::ServerService : public v1::Server::Service {
 public:
  explicit ServerService(FakeServer* fake) : fake_(fake) {}

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    const std::lock_guard lock(fake_->mutex_);
    response->set_version("fake");
    response->set_server_epoch(fake_->epoch_);
    *response->mutable_limits() = fake_->limits_;
    return grpc::Status::OK;
  }

 private:
  FakeServer* const fake_;
};

FakeServer::FakeServer()
    : attention_(std::make_unique<AttentionService>(this)),
      sequences_(std::make_unique<SequencesService>(this)),
      models_(std::make_unique<ModelsService>()),
      info_(std::make_unique<ServerService>(this)) {
  limits_.set_max_message_bytes(1 << 20);
  limits_.set_max_items_per_request(4096);
  limits_.set_max_q_rows_per_request(1 << 16);
  Start();
}

FakeServer::~FakeServer() { Stop(); }

void FakeServer::Start() {
  grpc::ServerBuilder builder;
  const std::string address = absl::StrCat("127.0.0.1:", port_);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
  builder.SetMaxReceiveMessageSize(INT_MAX);
  builder.RegisterService(attention_.get());
  builder.RegisterService(sequences_.get());
  builder.RegisterService(models_.get());
  builder.RegisterService(info_.get());
  server_ = builder.BuildAndStart();
  ATTN_CHECK(server_ != nullptr, "the fake server cannot listen on ", address);
}

void FakeServer::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

std::string FakeServer::target() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeServer::SetFaults(Faults faults) {
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
}

void FakeServer::SetLimits(const v1::Limits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

void FakeServer::SetEpoch(uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
}

int FakeServer::NoteAttendLocked(const v1::AttendRequest& request) {
  attends_.push_back(request);
  max_message_bytes_seen_ = std::max(max_message_bytes_seen_, request.ByteSizeLong());
  return static_cast<int>(attends_.size()) - 1;
}

v1::OpenSequencesResponse FakeServer::OpenLocked(const v1::OpenSequencesRequest& request) {
  const auto found = opened_.find(request.request_key());
  if (found != opened_.end()) return found->second;
  v1::OpenSequencesResponse response;
  response.set_server_epoch(epoch_);
  response.set_lease_ms(request.lease_ms());
  for (int i = 0; i < request.items_size(); ++i) response.add_sequence_ids(next_sequence_++);
  opened_[request.request_key()] = response;
  return response;
}

namespace {

template <typename Field>
auto At(const Field& field, int item) {
  return field.size() == 0 ? 0 : field.Get(field.size() == 1 ? 0 : item);
}

}  // namespace

v1::AttendResponse FakeServer::AttendLocked(const v1::AttendRequest& request, int nth) {
  v1::AttendResponse response;
  bool any_replayed = false;
  for (int i = 0; i < request.sequence_ids_size(); ++i) {
    Layer& layer = layers_[{request.sequence_ids(i), At(request.layers(), i)}];
    const uint32_t expected = At(request.expected_lens(), i);
    const uint32_t kv_new = At(request.kv_new_lens(), i);
    const uint64_t token = At(request.append_tokens(), i);
    v1::Status failure;
    if (faults_.refuse_item) failure = faults_.refuse_item(nth, i);
    const bool replayed =
        kv_new > 0 && layer.tokens.contains(token) && layer.tokens[token] == expected;
    if (failure.code() == 0 && kv_new > 0 && !replayed) {
      if (layer.len != expected) {
        failure = WireError(Reason::kLengthMismatch, absl::StrCat("expected_lens[", i, "]"),
                            absl::StrCat("got ", expected, ", want ", layer.len));
      } else {
        layer.tokens[token] = expected;
        layer.len += kv_new;
      }
    }
    any_replayed |= replayed;
    response.add_item_replayed(replayed);
    response.add_new_lens(layer.len);
    response.add_item_reasons(failure.code() == 0 ? v1::REASON_OK : failure.reason());
    if (failure.code() != 0) {
      v1::ItemError* error = response.add_errors();
      error->set_item(static_cast<uint32_t>(i));
      *error->mutable_status() = failure;
    }
  }
  if (!any_replayed) response.clear_item_replayed();
  if (response.errors_size() == 0) response.clear_item_reasons();
  if (request.has_q()) *response.mutable_out() = request.q();
  response.mutable_timing()->set_launch_items(static_cast<uint32_t>(request.sequence_ids_size()));
  return response;
}

std::vector<v1::AttendRequest> FakeServer::attends() const {
  const std::lock_guard lock(mutex_);
  return attends_;
}

std::vector<v1::AttendStreamRequest> FakeServer::stream_messages() const {
  const std::lock_guard lock(mutex_);
  return stream_messages_;
}

int FakeServer::num_streams() const {
  const std::lock_guard lock(mutex_);
  return num_streams_;
}

int FakeServer::num_renewals() const {
  const std::lock_guard lock(mutex_);
  return num_renewals_;
}

std::vector<uint64_t> FakeServer::request_keys() const {
  const std::lock_guard lock(mutex_);
  return request_keys_;
}

size_t FakeServer::max_message_bytes_seen() const {
  const std::lock_guard lock(mutex_);
  return max_message_bytes_seen_;
}

uint32_t FakeServer::LengthOf(uint64_t sequence, uint32_t layer) const {
  const std::lock_guard lock(mutex_);
  const auto found = layers_.find({sequence, layer});
  return found == layers_.end() ? 0 : found->second.len;
}

}  // namespace attn::client
