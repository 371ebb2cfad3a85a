// AttendStream: prepared lists, aliases, request ids, cancellation, time limits and flow.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Answers = std::map<uint64_t, v1::AttendStreamResponse>;

v1::AttendStreamRequest AttendMessage(uint64_t id, const std::vector<Step>& steps) {
  v1::AttendStreamRequest message;
  message.set_request_id(id);
  *message.mutable_attend() = MakeRequest(steps);
  return message;
}

v1::AttendStreamRequest OpenMessage(uint64_t id, uint32_t alias, bool close_with_stream = false,
                                    const std::string& model = "tiny") {
  v1::AttendStreamRequest message;
  message.set_request_id(id);
  v1::OpenSequencesRequest* open = message.mutable_open();
  open->set_model(model);
  open->set_owner("stream");
  open->set_close_with_stream(close_with_stream);
  open->add_items()->set_alias(alias);
  return message;
}

// Writes everything, half-closes, reads to the end. Answers by request id.
Answers Exchange(Stubs& stubs, const std::vector<v1::AttendStreamRequest>& messages,
                 grpc::Status* status = nullptr) {
  grpc::ClientContext context;
  const auto stream = stubs.attention->AttendStream(&context);
  for (const v1::AttendStreamRequest& message : messages) stream->Write(message);
  stream->WritesDone();
  Answers answers;
  v1::AttendStreamResponse response;
  while (stream->Read(&response)) {
    EXPECT_TRUE(answers.emplace(response.request_id(), response).second)
        << "a second answer to " << response.request_id();
  }
  const grpc::Status end = stream->Finish();
  if (status != nullptr) {
    *status = end;
  } else {
    EXPECT_TRUE(end.ok()) << end.error_message();
  }
  return answers;
}

v1::Reason ReasonOfAnswer(const v1::AttendStreamResponse& answer) {
  return answer.status().reason();
}

TEST(AttendStreamTest, APreparedListIsAnsweredWholeAfterHalfClose) {
  TestServer server;
  Random random(31);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  std::vector<v1::AttendStreamRequest> messages;
  std::vector<Rows> want;
  for (uint64_t request = 1; request <= 40; ++request) {
    const int64_t before = kv.len();
    const Step step = AppendStep(random, id, 0, 1, &kv);
    messages.push_back(AttendMessage(request, {step}));
    want.push_back(PlainAttend(kv, step.q, {.q_start = before, .kv_end = before + 1}));
  }
  const Answers answers = Exchange(server.stubs(), messages);
  ASSERT_THAT(answers, SizeIs(40));
  for (const auto& [request, answer] : answers) {
    ASSERT_TRUE(answer.has_attend()) << answer.ShortDebugString();
    EXPECT_THAT(answer.attend().new_lens(), ElementsAre(request));
    ExpectNear(Floats(answer.attend().out()), want[request - 1]);
    EXPECT_GT(answer.attend().timing().compute_ns(), 0u);
  }
}

TEST(AttendStreamTest, AStreamLongerThanItsLimitIsSlowedAndNeverCutOff) {
  server::ServerOptions options = TestOptions();
  options.limits.max_in_flight_per_stream = 3;
  TestServer server(options);
  Random random(32);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  std::vector<v1::AttendStreamRequest> messages;
  for (uint64_t request = 1; request <= 100; ++request) {
    messages.push_back(AttendMessage(request, {AppendStep(random, id, 0, 1, &kv)}));
  }
  const Answers answers = Exchange(server.stubs(), messages);
  ASSERT_THAT(answers, SizeIs(100));
  int with_flow = 0;
  for (const auto& [request, answer] : answers) {
    EXPECT_TRUE(answer.has_attend());
    if (!answer.has_flow()) continue;
    ++with_flow;
    EXPECT_EQ(answer.flow().requests_allowed(), 3u);
    EXPECT_FALSE(answer.flow().draining());
  }
  EXPECT_EQ(with_flow, 1);
}

TEST(AttendStreamTest, AliasesWorkFromTheNextMessageOnAndInTheirStreamOnly) {
  TestServer server;
  Random random(33);
  PlainLayer kv;
  const Step append = AppendStep(random, 5, 0, 6, &kv);
  const Step read{.sequence = 9, .q = RandomRows(random, 1, kQHeads)};
  v1::AttendStreamRequest fork;
  fork.set_request_id(3);
  fork.mutable_fork()->add_items()->set_parent_id(5);
  fork.mutable_fork()->mutable_items(0)->set_num_children(2);
  fork.mutable_fork()->mutable_items(0)->set_first_alias(8);
  fork.mutable_fork()->mutable_items(0)->set_at_len(0);
  v1::AttendStreamRequest close;
  close.set_request_id(5);
  for (const uint64_t alias : {5, 8, 9}) close.mutable_close()->add_sequence_ids(alias);
  const Answers answers = Exchange(server.stubs(), {OpenMessage(1, 5), AttendMessage(2, {append}),
                                                    fork, AttendMessage(4, {read}), close});
  ASSERT_THAT(answers, SizeIs(5));
  ExpectNear(Floats(answers.at(2).attend().out()), PlainAttend(kv, append.q, {.kv_end = 6}));
  EXPECT_THAT(answers.at(3).fork().child_ids(), SizeIs(2)) << answers.at(3).ShortDebugString();
  EXPECT_THAT(answers.at(4).attend().new_lens(), ElementsAre(0));
  EXPECT_THAT(answers.at(5).close().errors(), SizeIs(0));
  EXPECT_TRUE(server.PagesComeBackWithin(std::chrono::seconds(2)));

  const Answers other = Exchange(server.stubs(), {AttendMessage(1, {read})});
  EXPECT_THAT(other.at(1).attend().item_reasons(), ElementsAre(v1::REASON_UNKNOWN_SEQUENCE));
}

TEST(AttendStreamTest, ItemsOnTheAliasOfAFailedOpenAreSkipped) {
  TestServer server;
  Random random(34);
  const Step read{.sequence = 5, .q = RandomRows(random, 1, kQHeads)};
  const Answers answers = Exchange(
      server.stubs(), {OpenMessage(1, 5, false, "no such model"), AttendMessage(2, {read})});
  EXPECT_EQ(ReasonOfAnswer(answers.at(1)), v1::REASON_UNKNOWN_MODEL);
  EXPECT_THAT(answers.at(2).attend().item_reasons(), ElementsAre(v1::REASON_SKIPPED));
}

TEST(AttendStreamTest, WhatClosesWithTheStreamIsClosedWhenItEnds) {
  TestServer server;
  Random random(35);
  PlainLayer kv;
  Exchange(server.stubs(),
           {OpenMessage(1, 5, true), AttendMessage(2, {AppendStep(random, 5, 0, 30, &kv)})});
  EXPECT_TRUE(server.PagesComeBackWithin(std::chrono::seconds(2)));
}

TEST(AttendStreamTest, BadRequestsAreAnsweredAndTheStreamGoesOn) {
  TestServer server;
  Random random(36);
  const uint64_t id = server.OpenOne();
  const Step read{.sequence = id, .q = RandomRows(random, 1, kQHeads)};
  v1::AttendStreamRequest empty;
  empty.set_request_id(2);
  v1::AttendStreamRequest compute;
  compute.set_request_id(3);
  compute.mutable_compute();
  v1::AttendStreamRequest unknown = AttendMessage(4, {read});
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(17, 1);
  v1::AttendStreamRequest hint = AttendMessage(5, {read});
  hint.GetReflection()->MutableUnknownFields(&hint)->AddVarint(1017, 1);
  v1::AttendStreamRequest short_q = AttendMessage(6, {read});
  short_q.mutable_attend()->mutable_q()->mutable_raw()->pop_back();
  const Answers answers = Exchange(
      server.stubs(),
      {AttendMessage(0, {read}), empty, compute, unknown, hint, short_q, AttendMessage(7, {read})});
  ASSERT_THAT(answers, SizeIs(7));
  EXPECT_EQ(answers.at(0).status().field(), "request_id");
  EXPECT_EQ(ReasonOfAnswer(answers.at(2)), v1::REASON_INVALID);
  EXPECT_EQ(answers.at(2).status().field(), "request");
  EXPECT_EQ(ReasonOfAnswer(answers.at(3)), v1::REASON_UNSUPPORTED);
  EXPECT_EQ(answers.at(3).status().field(), "compute");
  EXPECT_EQ(ReasonOfAnswer(answers.at(4)), v1::REASON_UNSUPPORTED);
  EXPECT_EQ(answers.at(4).status().field(), "17");
  EXPECT_TRUE(answers.at(5).has_attend());
  EXPECT_EQ(answers.at(6).status().field(), "q.raw");
  EXPECT_TRUE(answers.at(7).has_attend());
}

TEST(AttendStreamTest, BytesThatAreNoMessageEndTheStreamWithInvalidArgument) {
  TestServer server;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(server.stubs().channel);
  const auto stream = stub.PrepareCall(&context, "/attn.v1.Attention/AttendStream", &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };
  stream->StartCall(nullptr);
  ASSERT_TRUE(next());
  const grpc::Slice garbage(std::string(40, '\xff'));
  stream->Write(grpc::ByteBuffer(&garbage, 1), nullptr);
  ASSERT_TRUE(next());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(next());
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(DetailOf(status).reason(), v1::REASON_INVALID);
}

TEST(AttendStreamTest, AnAliasAndTheIdOfOneSequenceAreOnePairThatIsAppendedToOnce) {
  TestServer server;
  Random random(40);
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  stream->Write(OpenMessage(1, 5));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  const uint64_t id = response.open().sequence_ids(0);
  PlainLayer kv;
  PlainLayer other;
  const Step first = AppendStep(random, 5, 0, 2, &kv);
  Step again = first;
  again.sequence = id;
  stream->Write(AttendMessage(2, {first, again, AppendStep(random, id, 1, 2, &other)}));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.attend().item_reasons(),
              ElementsAre(v1::REASON_OK, v1::REASON_INVALID, v1::REASON_OK));
  EXPECT_THAT(response.attend().new_lens(), ElementsAre(2, 0, 2)) << response.ShortDebugString();
  EXPECT_EQ(response.attend().errors(0).status().field(), "sequence_ids[1]");
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

// ------------------------------------------------------------- a device that waits for the test

// Holds every launch until the test lets go.
struct SlowDevice {
  SlowDevice() {
    device->on_launch = [this](const Batch&) {
      if (!started_done) started.set_value();
      started_done = true;
      released.wait();
    };
  }
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::promise<void> started;
  bool started_done = false;  // of the engine thread
};

TEST(AttendStreamTest, ACancelledRequestThatWaitsIsNotRun) {
  SlowDevice slow;
  TestServer server(TestOptions(), CreateFakeBackend(slow.device));
  Random random(37);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  stream->Write(AttendMessage(1, {AppendStep(random, id, 0, 1, &kv)}));
  slow.started.get_future().wait();
  stream->Write(AttendMessage(2, {AppendStep(random, id, 0, 1, &kv)}));
  stream->Write(AttendMessage(1, {AppendStep(random, id, 0, 1, &kv)}));  // the id is in flight
  v1::AttendStreamRequest cancel;
  cancel.set_request_id(3);
  cancel.mutable_cancel()->add_request_ids(2);
  cancel.mutable_cancel()->add_request_ids(77);
  stream->Write(cancel);
  stream->WritesDone();
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));  // answered while the device is busy
  EXPECT_EQ(response.request_id(), 1u);
  EXPECT_EQ(response.status().field(), "request_id");
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_cancel()) << response.ShortDebugString();
  slow.release.set_value();
  Answers answers;
  while (stream->Read(&response)) answers.emplace(response.request_id(), response);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_THAT(answers.at(1).attend().new_lens(), ElementsAre(1));
  EXPECT_THAT(answers.at(2).attend().item_reasons(), ElementsAre(v1::REASON_CANCELLED));
  EXPECT_EQ(server.Describe(id).layer_lens(0), 1u);
}

TEST(AttendStreamTest, ARequestWhoseTimeHasPassedIsNotRun) {
  SlowDevice slow;
  TestServer server(TestOptions(), CreateFakeBackend(slow.device));
  Random random(38);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  stream->Write(AttendMessage(1, {AppendStep(random, id, 0, 1, &kv)}));
  slow.started.get_future().wait();
  v1::AttendStreamRequest late = AttendMessage(2, {AppendStep(random, id, 0, 1, &kv)});
  late.set_timeout_us(1);
  stream->Write(late);
  v1::AttendStreamRequest cancel;  // its answer proves that request 2 has arrived
  cancel.set_request_id(3);
  cancel.mutable_cancel();
  stream->Write(cancel);
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.request_id(), 3u);
  slow.release.set_value();
  stream->WritesDone();
  Answers answers;
  while (stream->Read(&response)) answers.emplace(response.request_id(), response);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(answers.at(2).attend().item_reasons(), ElementsAre(v1::REASON_DEADLINE));
  EXPECT_EQ(server.Describe(id).layer_lens(0), 1u);
}

TEST(AttendStreamTest, HealthAnswersWhileTheDeviceIsBusy) {
  SlowDevice slow;
  TestServer server(TestOptions(), CreateFakeBackend(slow.device));
  Random random(39);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  for (uint64_t request = 1; request <= 20; ++request) {
    stream->Write(AttendMessage(request, {AppendStep(random, id, 0, 1, &kv)}));
  }
  slow.started.get_future().wait();
  for (int i = 0; i < 5; ++i) {
    grpc::ClientContext info_context;
    info_context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(server.stubs().server->GetServerInfo(&info_context, {}, &info).ok());
  }
  slow.release.set_value();
  stream->WritesDone();
  v1::AttendStreamResponse response;
  int answers = 0;
  while (stream->Read(&response)) ++answers;
  EXPECT_EQ(answers, 20);
}

}  // namespace
}  // namespace attn::test
