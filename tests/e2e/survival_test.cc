// What must not hurt the server: vanished clients, leases that run out, overload, bad input beside
// good, and being stopped under load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using Stream = grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>;

v1::OpenSequencesResponse OpenWithLease(TestServer& server, uint32_t lease_ms) {
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner("short");
  request.set_lease_ms(lease_ms);
  request.add_items();
  grpc::ClientContext context;
  v1::OpenSequencesResponse response;
  EXPECT_TRUE(server.stubs().sequences->OpenSequences(&context, request, &response).ok());
  return response;
}

TEST(SurvivalTest, ALeaseThatIsNotRenewedGivesThePagesBack) {
  TestServer server;
  Random random(51);
  const v1::OpenSequencesResponse opened = OpenWithLease(server, 50);
  EXPECT_EQ(opened.lease_ms(), 50u);
  const uint64_t id = opened.sequence_ids(0);
  PlainLayer kv;
  server.Attend(MakeRequest({AppendStep(random, id, 0, 100, &kv)}));
  EXPECT_TRUE(server.PagesComeBackWithin(milliseconds(1050)));
  const Step read{.sequence = id, .q = RandomRows(random, 1, kQHeads)};
  EXPECT_THAT(server.Attend(MakeRequest({read})).item_reasons(),
              ElementsAre(v1::REASON_STALE_SEQUENCE));
}

TEST(SurvivalTest, ARenewedLeaseHolds) {
  TestServer server;
  Random random(52);
  const uint64_t id = OpenWithLease(server, 50).sequence_ids(0);
  v1::RenewLeaseRequest request;
  request.set_owner("short");
  request.set_lease_ms(60'000);
  grpc::ClientContext context;
  v1::RenewLeaseResponse response;
  ASSERT_TRUE(server.stubs().sequences->RenewLease(&context, request, &response).ok());
  EXPECT_EQ(response.num_sequences(), 1u);
  EXPECT_EQ(response.lease_ms(), 60'000u);
  EXPECT_GT(server.Describe(id).lease_remaining_ms(), 50'000u);
}

// A client that is gone in the middle: its channel is destroyed with requests in flight.
TEST(SurvivalTest, AVanishedClientLeavesNoPagesBehindItsLease) {
  TestServer server;
  Random random(53);
  const uint64_t id = OpenWithLease(server, 100).sequence_ids(0);
  PlainLayer kv;
  {
    Stubs vanishing(server.server().address());
    grpc::ClientContext context;
    const auto stream = vanishing.attention->AttendStream(&context);
    for (uint64_t request = 1; request <= 50; ++request) {
      v1::AttendStreamRequest message;
      message.set_request_id(request);
      *message.mutable_attend() = MakeRequest({AppendStep(random, id, 0, 20, &kv)});
      stream->Write(message);
    }
    v1::AttendStreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
    context.TryCancel();
    while (stream->Read(&response)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_TRUE(server.PagesComeBackWithin(milliseconds(1100)));
}

TEST(SurvivalTest, ABadItemInABatchOfGoodOnesFailsAlone) {
  TestServer server;
  Random random(55);
  const std::vector<uint64_t> ids = server.Open(4);
  PlainLayer kv[4];
  std::vector<Step> steps;
  for (int i = 0; i < 4; ++i) steps.push_back(AppendStep(random, ids[i], 0, 2, &kv[i]));
  steps[1].layer = 7;
  steps[2].expected_len = 5;
  const v1::AttendResponse response = server.Attend(MakeRequest(steps));
  EXPECT_THAT(response.item_reasons(), ElementsAre(v1::REASON_OK, v1::REASON_INVALID,
                                                   v1::REASON_LENGTH_MISMATCH, v1::REASON_OK));
  EXPECT_THAT(response.new_lens(), ElementsAre(2, 0, 0, 2));
  const std::vector<float> out = Floats(response.out());
  const size_t rows = 2 * kQHeads * kHeadDim;
  ASSERT_EQ(out.size(), 4 * rows);
  for (const int good : {0, 3}) {
    const auto begin = out.begin() + static_cast<int64_t>(good * rows);
    ExpectNear({begin, begin + static_cast<int64_t>(rows)},
               PlainAttend(kv[good], steps[good].q, {.kv_end = 2}));
  }
  for (size_t i = rows; i < 3 * rows; ++i) ASSERT_TRUE(std::isnan(out[i]));
}

TEST(SurvivalTest, ARequestWithAWrongTensorIsNamedAndTheNextIsServed) {
  TestServer server;
  Random random(56);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  const Step step = AppendStep(random, id, 0, 1, &kv);
  v1::AttendRequest bad = MakeRequest({step});
  bad.mutable_q()->set_dtype(v1::DATA_TYPE_FLOAT16);
  v1::Status detail;
  EXPECT_EQ(server.AttendStatus(bad, &detail).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "q.dtype");
  EXPECT_EQ(detail.reason(), v1::REASON_INVALID);
  EXPECT_THAT(server.Attend(MakeRequest({step})).new_lens(), ElementsAre(1));
}

TEST(SurvivalTest, AQueueThatIsFullSaysSoAndForgetsNothing) {
  auto device = std::make_shared<FakeDevice>();
  std::promise<void> release;
  std::promise<void> started;
  std::once_flag once;
  device->on_launch = [&, released = release.get_future().share()](const Batch&) {
    std::call_once(once, [&started] { started.set_value(); });
    released.wait();
  };
  server::ServerOptions options = TestOptions();
  options.engine.queue.max_items = 4;
  TestServer server(options, CreateFakeBackend(device));
  Random random(57);
  const std::vector<uint64_t> ids = server.Open(4);
  PlainLayer kv[4];
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  v1::AttendStreamRequest message;
  for (uint64_t request = 1; request <= 3; ++request) {
    message.set_request_id(request);
    const std::vector<Step> steps = {AppendStep(random, ids[request - 1], 0, 1, &kv[request - 1]),
                                     AppendStep(random, ids[request - 1], 1, 1, &kv[3])};
    *message.mutable_attend() = MakeRequest(steps);
    message.mutable_attend()->clear_expected_lens();
    message.mutable_attend()->add_expected_lens(0);
    stream->Write(message);
  }
  started.get_future().wait();
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.request_id(), 3u);
  EXPECT_EQ(response.status().reason(), v1::REASON_QUEUE_FULL);
  EXPECT_GT(response.status().retry_after_ms(), 0u);
  release.set_value();
  stream->WritesDone();
  int answers = 0;
  while (stream->Read(&response)) {
    EXPECT_TRUE(response.has_attend());
    ++answers;
  }
  EXPECT_EQ(answers, 2);
  EXPECT_TRUE(stream->Finish().ok());
}

// --------------------------------------------------------------------------------------- draining

TEST(SurvivalTest, ADrainUnderLoadAnswersWhatWasAcceptedAndLosesNoReply) {
  server::ServerOptions options = TestOptions();
  options.linger = 500 * kMillisecond;  // every client comes again in this time, and is refused
  TestServer server(options);
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      Stubs stubs(server.server().address());
      Random random(580 + static_cast<uint64_t>(c));
      const uint64_t id = server.OpenOne("drain " + std::to_string(c));
      PlainLayer kv;
      for (;;) {
        grpc::ClientContext context;
        v1::AttendResponse response;
        const grpc::Status status = stubs.attention->Attend(
            &context, MakeRequest({AppendStep(random, id, 0, 1, &kv)}), &response);
        if (!status.ok()) {
          EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
          ++refused;
          return;
        }
        ASSERT_THAT(response.new_lens(), ElementsAre(kv.len()));
        ++answered;
      }
    });
  }
  while (answered < 50) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  server.server().Drain();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(server.server().engine().queue().load().items, 0u);
}

TEST(SurvivalTest, ADrainTellsIdleStreamsAndEndsThem) {
  TestServer server;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<Stream>> streams;
  v1::AttendStreamResponse response;
  for (int i = 0; i < 100; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(server.stubs().attention->AttendStream(contexts.back().get()));
    v1::AttendStreamRequest message;
    message.set_request_id(1);
    message.mutable_cancel();
    streams.back()->Write(message);
    ASSERT_TRUE(streams.back()->Read(&response));
  }
  const auto begin = std::chrono::steady_clock::now();
  server.server().Drain();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  for (auto& stream : streams) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.request_id(), 0u);
    EXPECT_TRUE(response.flow().draining());
    EXPECT_FALSE(stream->Read(&response));
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
    const v1::Status detail = DetailOf(status);
    EXPECT_EQ(detail.reason(), v1::REASON_DRAINING);
    EXPECT_GT(detail.retry_after_ms(), 0u);
  }
}

// Reads of 200 rows each, 50 KiB a request: more than the transport takes from us unread.
void WriteReads(Stream& stream, uint64_t sequence, Random& random, int count) {
  const Step read{.sequence = sequence, .q = RandomRows(random, 200, kQHeads)};
  v1::AttendStreamRequest message;
  *message.mutable_attend() = MakeRequest({read});
  for (int request = 1; request <= count; ++request) {
    message.set_request_id(static_cast<uint64_t>(request));
    ASSERT_TRUE(stream.Write(message));
  }
}

TEST(SurvivalTest, ADrainDoesNotWaitForAClientThatNeverReads) {
  server::ServerOptions options = TestOptions();
  options.grace = 60 * kSecond;
  options.unread_time = 500 * kMillisecond;
  TestServer server(options);
  Random random(60);
  const uint64_t id = server.OpenOne();
  const auto& completed = server.server().engine().stats().calls_completed;
  const uint64_t before = completed.value();
  Stubs lazy(server.server().address());
  grpc::ClientContext lazy_context;
  const auto unread = lazy.attention->AttendStream(&lazy_context);
  WriteReads(*unread, id, random, 40);
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  WriteReads(*stream, id, random, 40);
  while (completed.value() < before + 80) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  std::thread drain([&server] { server.server().Drain(); });
  // A client that reads gets everything, though it takes longer than that time in all.
  v1::AttendStreamResponse response;
  int answers = 0;
  while (stream->Read(&response)) {
    answers += response.has_attend();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(answers, 40);
  drain.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  while (unread->Read(&response)) {
  }
  EXPECT_THAT(unread->Finish().error_code(), AnyOf(grpc::CANCELLED, grpc::UNAVAILABLE));
}

TEST(SurvivalTest, ADrainEndsCallsThatTheDeviceHoldsUp) {
  auto device = std::make_shared<FakeDevice>();
  std::promise<void> release;
  std::promise<void> started;
  std::once_flag once;
  device->on_launch = [&, released = release.get_future().share()](const Batch&) {
    std::call_once(once, [&started] { started.set_value(); });
    released.wait();
  };
  server::ServerOptions options = TestOptions();
  options.grace = 50 * kMillisecond;
  TestServer server(options, CreateFakeBackend(device));
  Random random(59);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  const v1::AttendRequest first = MakeRequest({AppendStep(random, id, 0, 1, &kv)});
  const v1::AttendRequest second = MakeRequest({AppendStep(random, id, 0, 1, &kv)});
  std::vector<std::future<grpc::Status>> calls;
  calls.push_back(std::async(std::launch::async, [&] { return server.AttendStatus(first); }));
  started.get_future().wait();
  calls.push_back(std::async(std::launch::async, [&] { return server.AttendStatus(second); }));
  while (server.server().engine().queue().load().items < 2) std::this_thread::yield();
  std::thread drain([&server] { server.server().Drain(); });
  // The device comes back after the grace is over: what it held is answered, the rest is not run.
  std::this_thread::sleep_for(milliseconds(400));
  release.set_value();
  drain.join();
  for (auto& call : calls) {
    EXPECT_THAT(call.get().error_code(), AnyOf(grpc::OK, grpc::UNAVAILABLE));
  }
}

}  // namespace
}  // namespace attn::test
