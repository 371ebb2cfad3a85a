#include "tests/e2e/test_server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "attn/base/check.h"
#include "attn/v1/rpc_status.pb.h"

namespace attn::test {

server::ServerOptions TestOptions() {
  server::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.num_threads = 1;
  options.engine.kv_bytes = 64 << 20;
  options.limits.min_lease_ms = 50;
  options.grace = 5 * kSecond;
  options.linger = 0;
  return options;
}

Stubs::Stubs(const std::string& address, grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  // With gRPC 1.51 a first attempt fails now and then for nothing: it looks at errno after
  // connect() when other calls have overwritten it (grpc/grpc pull request 35064). The second comes
  // a second later, and calls that do not wait for it are UNAVAILABLE meanwhile.
  channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
  server = v1::Server::NewStub(channel);
  models = v1::Models::NewStub(channel);
  sequences = v1::Sequences::NewStub(channel);
  attention = v1::Attention::NewStub(channel);
}

TestServer::TestServer(const server::ServerOptions& options, std::unique_ptr<Backend> backend,
                       server::Log* log) {
  auto started = backend == nullptr ? server::Server::Start(options, log)
                                    : server::Server::StartOn(std::move(backend), options, log);
  ATTN_CHECK(started.ok(), started.status().ToString());
  server_ = *std::move(started);
  stubs_ = std::make_unique<Stubs>(server_->address());
  grpc::ClientContext context;
  v1::DeclareModelRequest request;
  *request.mutable_spec() = TinySpec();
  v1::DeclareModelResponse response;
  const grpc::Status status = stubs_->models->DeclareModel(&context, request, &response);
  ATTN_CHECK(status.ok(), status.error_message());
}

std::vector<uint64_t> TestServer::Open(int count, const std::string& owner) {
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner(owner);
  for (int i = 0; i < count; ++i) request.add_items();
  grpc::ClientContext context;
  v1::OpenSequencesResponse response;
  const grpc::Status status = stubs_->sequences->OpenSequences(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.errors_size(), 0) << response.ShortDebugString();
  return {response.sequence_ids().begin(), response.sequence_ids().end()};
}

v1::AttendResponse TestServer::Attend(const v1::AttendRequest& request) {
  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = stubs_->attention->Attend(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

grpc::Status TestServer::AttendStatus(const v1::AttendRequest& request, v1::Status* detail) {
  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = stubs_->attention->Attend(&context, request, &response);
  if (detail != nullptr) *detail = DetailOf(status);
  return status;
}

v1::SequenceInfo TestServer::Describe(uint64_t id) {
  v1::DescribeSequencesRequest request;
  request.add_sequence_ids(id);
  grpc::ClientContext context;
  v1::DescribeSequencesResponse response;
  const grpc::Status status = stubs_->sequences->DescribeSequences(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.sequences_size() == 1 ? response.sequences(0) : v1::SequenceInfo();
}

void TestServer::Close(const std::vector<uint64_t>& ids) {
  v1::CloseSequencesRequest request;
  request.mutable_sequence_ids()->Assign(ids.begin(), ids.end());
  grpc::ClientContext context;
  v1::CloseSequencesResponse response;
  const grpc::Status status = stubs_->sequences->CloseSequences(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.errors_size(), 0) << response.ShortDebugString();
}

int64_t TestServer::PagesInUse() {
  const kvcache::CacheStats stats = server_->engine().cache_stats();
  return stats.pages.live + stats.pages.reserved;
}

bool TestServer::PagesComeBackWithin(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  // The engine publishes its figures before it waits for the next call, so one more round trip
  // makes them as new as what this client has seen.
  v1::RenewLeaseRequest request;
  request.set_owner("nobody");
  grpc::ClientContext context;
  v1::RenewLeaseResponse response;
  EXPECT_TRUE(stubs_->sequences->RenewLease(&context, request, &response).ok());
  while (PagesInUse() != 0 || server_->engine().queue().load().items != 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

v1::Tensor MakeTensor(const Rows& values, uint32_t heads) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_FLOAT32);
  tensor.add_shape(static_cast<int64_t>(values.size()) / (heads * kHeadDim));
  tensor.add_shape(heads);
  tensor.add_shape(kHeadDim);
  tensor.set_raw(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  return tensor;
}

std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.raw().size() / sizeof(float));
  std::memcpy(values.data(), tensor.raw().data(), values.size() * sizeof(float));
  return values;
}

v1::AttendRequest MakeRequest(const std::vector<Step>& steps, bool return_lse) {
  v1::AttendRequest request;
  Rows q, k, v;
  for (const Step& step : steps) {
    request.add_sequence_ids(step.sequence);
    request.add_layers(step.layer);
    request.add_expected_lens(step.expected_len);
    request.add_flags(step.flags);
    request.add_append_tokens(step.token);
    request.add_q_lens(static_cast<uint32_t>(step.q.size() / (kQHeads * kHeadDim)));
    request.add_kv_new_lens(static_cast<uint32_t>(step.k.size() / (kKvHeads * kHeadDim)));
    q.insert(q.end(), step.q.begin(), step.q.end());
    k.insert(k.end(), step.k.begin(), step.k.end());
    v.insert(v.end(), step.v.begin(), step.v.end());
  }
  if (!q.empty()) *request.mutable_q() = MakeTensor(q, kQHeads);
  if (!k.empty()) *request.mutable_k() = MakeTensor(k, kKvHeads);
  if (!v.empty()) *request.mutable_v() = MakeTensor(v, kKvHeads);
  request.set_return_lse(return_lse);
  return request;
}

Step AppendStep(Random& random, uint64_t sequence, uint32_t layer, int64_t count, PlainLayer* kv) {
  Step step;
  step.sequence = sequence;
  step.layer = layer;
  step.expected_len = static_cast<uint32_t>(kv->len());
  step.token = random.Next() | 1;
  step.q = RandomRows(random, count, kQHeads);
  step.k = RandomRows(random, count, kKvHeads);
  step.v = RandomRows(random, count, kKvHeads);
  kv->Append(step.k, step.v);
  return step;
}

v1::Status DetailOf(const grpc::Status& status) {
  v1::RpcStatus rpc_status;
  v1::Status detail;
  const bool has_detail = rpc_status.ParseFromString(status.error_details()) &&
                          rpc_status.details_size() == 1 && rpc_status.details(0).UnpackTo(&detail);
  EXPECT_TRUE(has_detail) << "no attn.v1.Status with: " << status.error_message();
  return detail;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) continue;
    const double error = std::abs(double{got[i]} - double{want[i]});
    ASSERT_TRUE(error <= tolerance * (1 + std::abs(double{want[i]})))
        << "element " << i << ": got " << got[i] << ", want " << want[i];
  }
}

}  // namespace attn::test
