// The server as a service: info, models, health, reflection, limits of the transport, errors at
// start, two servers in one process.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "tests/e2e/health_watcher.h"
#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A unary call of a method whose messages are not ours, by bytes.
grpc::Status CallBytes(Stubs& stubs, const std::string& method, const std::string& request,
                       std::string* response) {
  grpc::GenericStub stub(stubs.channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer bytes;
  grpc::Status status;
  call->Finish(&bytes, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Slice flat;
  if (status.ok() && bytes.DumpToSingleSlice(&flat).ok()) {
    response->assign(reinterpret_cast<const char*>(flat.begin()), flat.size());
  }
  return status;
}

TEST(ServiceTest, InfoTellsEpochLimitsAndWhatTheDeviceAccepts) {
  TestServer server;
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.stubs().server->GetServerInfo(&context, {}, &info).ok());
  EXPECT_NE(info.server_epoch(), 0u);
  EXPECT_FALSE(info.version().empty());
  EXPECT_THAT(info.device(), HasSubstr("cpu"));
  EXPECT_THAT(info.activation_dtypes(), Contains(v1::DATA_TYPE_BFLOAT16));
  EXPECT_EQ(info.limits().max_message_bytes(), uint64_t{64} << 20);
  EXPECT_EQ(info.limits().remembered_appends(), 8u);
  EXPECT_EQ(info.limits().min_lease_ms(), 50u);
}

TEST(ServiceTest, APageSizeIsAcceptedIfAndOnlyIfInfoListsIt) {
  TestServer server;
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.stubs().server->GetServerInfo(&context, {}, &info).ok());
  const std::set<uint32_t> listed(info.page_sizes().begin(), info.page_sizes().end());
  EXPECT_TRUE(std::is_sorted(info.page_sizes().begin(), info.page_sizes().end()));
  EXPECT_THAT(listed, AllOf(Contains(1), Contains(16), Contains(48)));
  std::set<uint32_t> asked = {4096, 4097, UINT32_MAX};
  for (uint32_t size = 1; size <= *listed.rbegin() + 1; size += size < 40 ? 1 : 23) {
    asked.insert(size);
  }
  for (uint32_t past = 0; past < 2; ++past) asked.insert(*listed.rbegin() + past);
  for (const uint32_t size : asked) {
    v1::DeclareModelRequest declare;
    *declare.mutable_spec() = TinySpec(absl::StrCat("pages-of-", size));
    declare.mutable_spec()->set_page_size(size);
    v1::DeclareModelResponse declared;
    grpc::ClientContext of_declare;
    const grpc::Status status =
        server.stubs().models->DeclareModel(&of_declare, declare, &declared);
    EXPECT_EQ(status.ok(), listed.contains(size)) << size << ": " << status.error_message();
    if (status.ok()) {
      EXPECT_EQ(declared.model().spec().page_size(), size);
    } else {
      EXPECT_EQ(DetailOf(status).field(), "spec.page_size");
      EXPECT_THAT(status.error_message(),
                  HasSubstr(absl::StrCat("got ", size, ", want 0 to ", *listed.rbegin())));
    }
  }
}

TEST(ServiceTest, ModelsAreDeclaredListedRefusedAndRemoved) {
  TestServer server;
  auto& models = *server.stubs().models;
  v1::DeclareModelRequest declare;
  *declare.mutable_spec() = TinySpec();
  v1::DeclareModelResponse declared;
  grpc::ClientContext first;
  ASSERT_TRUE(models.DeclareModel(&first, declare, &declared).ok());
  EXPECT_TRUE(declared.already_declared());
  EXPECT_EQ(declared.model().fingerprint().size(), 32u);
  EXPECT_EQ(declared.model().kv_bytes_per_token(), 2u * kLayers * kKvHeads * kHeadDim * 4);

  declare.mutable_spec()->mutable_layer_groups(1)->mutable_window()->set_left(9);
  grpc::ClientContext other;
  const grpc::Status exists = models.DeclareModel(&other, declare, &declared);
  EXPECT_EQ(exists.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_EQ(DetailOf(exists).reason(), v1::REASON_MODEL_EXISTS);
  EXPECT_THAT(exists.error_message(), HasSubstr("window"));

  *declare.mutable_spec() = TinySpec("zebra");
  grpc::ClientContext second;
  ASSERT_TRUE(models.DeclareModel(&second, declare, &declared).ok());
  v1::ListModelsRequest list;
  list.set_max_models(1);
  v1::ListModelsResponse listed;
  grpc::ClientContext third;
  ASSERT_TRUE(models.ListModels(&third, list, &listed).ok());
  ASSERT_THAT(listed.models(), SizeIs(1));
  EXPECT_EQ(listed.models(0).spec().name(), "tiny");
  list.set_page_token(listed.next_page_token());
  grpc::ClientContext fourth;
  ASSERT_TRUE(models.ListModels(&fourth, list, &listed).ok());
  ASSERT_THAT(listed.models(), SizeIs(1));
  EXPECT_EQ(listed.models(0).spec().name(), "zebra");
  EXPECT_TRUE(listed.next_page_token().empty());

  const uint64_t id = server.OpenOne();
  v1::RemoveModelRequest remove;
  remove.set_name("tiny");
  v1::RemoveModelResponse removed;
  grpc::ClientContext fifth;
  const grpc::Status in_use = models.RemoveModel(&fifth, remove, &removed);
  EXPECT_EQ(in_use.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailOf(in_use).reason(), v1::REASON_MODEL_IN_USE);
  EXPECT_EQ(HealthOf(server.stubs().channel, "attn.model.tiny"), 1);
  server.Close({id});
  grpc::ClientContext sixth;
  EXPECT_TRUE(models.RemoveModel(&sixth, remove, &removed).ok());
  EXPECT_EQ(HealthOf(server.stubs().channel, "attn.model.tiny"), 2);
  v1::GetModelRequest get;
  get.set_name("tiny");
  v1::GetModelResponse got;
  grpc::ClientContext seventh;
  const grpc::Status gone = models.GetModel(&seventh, get, &got);
  EXPECT_EQ(DetailOf(gone).reason(), v1::REASON_UNKNOWN_MODEL);
}

TEST(ServiceTest, HealthKnowsTheProcessTheDataPathAndEachModel) {
  TestServer server;
  EXPECT_EQ(HealthOf(server.stubs().channel, ""), 1);
  EXPECT_EQ(HealthOf(server.stubs().channel, "attn.v1.Attention"), 1);
  EXPECT_EQ(HealthOf(server.stubs().channel, "attn.model.tiny"), 1);
  EXPECT_EQ(HealthOf(server.stubs().channel, "attn.model.other"), -grpc::NOT_FOUND);
}

TEST(ServiceTest, ReflectionListsTheServices) {
  TestServer server;
  grpc::GenericStub stub(server.stubs().channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };
  call->StartCall(nullptr);
  ASSERT_TRUE(next());
  const grpc::Slice list_services(std::string("\x3a\x01*"));  // field 7, "*"
  call->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(next());
  grpc::ByteBuffer bytes;
  call->Read(&bytes, nullptr);
  ASSERT_TRUE(next());
  grpc::Slice flat;
  ASSERT_TRUE(bytes.DumpToSingleSlice(&flat).ok());
  const std::string answer(reinterpret_cast<const char*>(flat.begin()), flat.size());
  for (const char* service : {"attn.v1.Server", "attn.v1.Models", "attn.v1.Sequences",
                              "attn.v1.Attention", "grpc.health.v1.Health"}) {
    EXPECT_THAT(answer, HasSubstr(service));
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
}

TEST(ServiceTest, ComputeIsRefusedByName) {
  TestServer server;
  grpc::ClientContext context;
  v1::ComputeResponse response;
  const grpc::Status status = server.stubs().attention->Compute(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(DetailOf(status).reason(), v1::REASON_UNSUPPORTED);
}

TEST(ServiceTest, AMessageAboveTheLimitIsResourceExhaustedAndTheNextOneIsServed) {
  server::ServerOptions options = TestOptions();
  options.limits.max_message_bytes = 1 << 20;
  TestServer server(options);
  Random random(41);
  const uint64_t id = server.OpenOne();
  v1::AttendRequest large = MakeRequest({{.sequence = id, .q = RandomRows(random, 1, kQHeads)}});
  large.mutable_q()->set_raw(std::string((1 << 20) + 1, 'x'));
  grpc::ClientContext context;
  v1::AttendResponse response;
  EXPECT_EQ(server.stubs().attention->Attend(&context, large, &response).error_code(),
            grpc::RESOURCE_EXHAUSTED);
  grpc::ClientContext stream_context;
  const auto stream = server.stubs().attention->AttendStream(&stream_context);
  v1::AttendStreamRequest message;
  message.set_request_id(1);
  *message.mutable_attend() = large;
  stream->Write(message);
  v1::AttendStreamResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::RESOURCE_EXHAUSTED);
  PlainLayer kv;
  EXPECT_THAT(server.Attend(MakeRequest({AppendStep(random, id, 0, 2, &kv)})).errors(), SizeIs(0));
}

TEST(ServiceTest, BytesThatAreNoMessageAreInvalidInUnaryCallsToo) {
  TestServer server;
  std::string response;
  for (const char* method : {"/attn.v1.Attention/Attend", "/attn.v1.Server/GetServerInfo",
                             "/attn.v1.Sequences/OpenSequences"}) {
    const grpc::Status status =
        CallBytes(server.stubs(), method, std::string(40, '\xff'), &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << method;
    EXPECT_EQ(DetailOf(status).reason(), v1::REASON_INVALID);
  }
}

TEST(ServiceTest, TwoServersInOneProcessDoNotSeeEachOther) {
  TestServer one;
  TestServer two;
  Random random(42);
  const uint64_t id = one.OpenOne();
  const uint64_t same_id = two.OpenOne();
  PlainLayer kv;
  one.Attend(MakeRequest({AppendStep(random, id, 0, 5, &kv)}));
  EXPECT_EQ(one.Describe(id).layer_lens(0), 5u);
  EXPECT_EQ(two.Describe(same_id).layer_lens(0), 0u);
  one.server().Drain();
  EXPECT_EQ(HealthOf(two.stubs().channel, ""), 1);
  PlainLayer other;
  EXPECT_THAT(two.Attend(MakeRequest({AppendStep(random, same_id, 0, 5, &other)})).errors(),
              SizeIs(0));
}

TEST(ServiceTest, AUnixSocketServesToo) {
  server::ServerOptions options = TestOptions();
  options.listen = "unix:" + ::testing::TempDir() + "attn_service_test.sock";
  TestServer server(options);
  EXPECT_EQ(server.server().port(), 0);
  EXPECT_EQ(server.server().address(), options.listen);
  EXPECT_EQ(HealthOf(server.stubs().channel, ""), 1);
}

TEST(ServiceTest, AnErrorAtStartNamesTheOption) {
  TestServer server;
  server::ServerOptions options = TestOptions();
  options.listen = server.server().address();  // taken
  EXPECT_EQ(FieldOf(server::Server::Start(options).status()), "--listen");
}

TEST(ServiceTest, AServerIsNotStartedForLongerSequencesThanItsDeviceComputes) {
  auto device = std::make_shared<FakeDevice>();
  device->max_kv_len = 1000;
  server::ServerOptions options = TestOptions();
  options.engine.max_sequence_len = 1001;
  const absl::Status status = server::Server::StartOn(CreateFakeBackend(device), options).status();
  EXPECT_EQ(FieldOf(status), "--max-sequence-len");
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1001"), HasSubstr("at most 1000")));
  options.engine.max_sequence_len = 1000;
  EXPECT_TRUE(server::Server::StartOn(CreateFakeBackend(device), options).ok());
}

TEST(ServiceTest, ModelsOfTheFileAreDeclaredAndAFaultNamesFileAndField) {
  const std::string path = ::testing::TempDir() + "attn_service_test.textproto";
  const char* const good =
      "models { name: \"filed\" activation_dtype: DATA_TYPE_BFLOAT16 num_layers: 1\n"
      "  layer_groups { layers: 0 num_q_heads: 4 num_kv_heads: %d head_dim_qk: 32 } }\n";
  server::ServerOptions options = TestOptions();
  options.models_file = path;
  char text[256];
  std::snprintf(text, sizeof(text), good, 2);
  std::ofstream(path) << text;
  {
    TestServer server(options);
    EXPECT_EQ(HealthOf(server.stubs().channel, "attn.model.filed"), 1);
  }
  std::snprintf(text, sizeof(text), good, 3);
  std::ofstream(path) << text;
  const absl::Status status = server::Server::Start(options).status();
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_THAT(status.message(), HasSubstr("models[0].layer_groups[0].num_kv_heads"));
}

}  // namespace
}  // namespace attn::test
