// How the program is run: started with options, watched through health, stopped by signals under
// load and without losing a reply.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "tests/e2e/health_watcher.h"
#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"
#include "tests/support/server_process.h"

namespace attn::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Stream = grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>;

const char kDataPath[] = "attn.v1.Attention";

void DeclareTiny(Stubs& stubs) {
  grpc::ClientContext context;
  v1::DeclareModelRequest request;
  *request.mutable_spec() = TinySpec();
  v1::DeclareModelResponse response;
  ASSERT_TRUE(stubs.models->DeclareModel(&context, request, &response).ok());
}

uint64_t OpenOne(Stubs& stubs, const std::string& owner) {
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner(owner);
  request.add_items();
  grpc::ClientContext context;
  v1::OpenSequencesResponse response;
  EXPECT_TRUE(stubs.sequences->OpenSequences(&context, request, &response).ok());
  return response.sequence_ids_size() == 1 ? response.sequence_ids(0) : 0;
}

v1::AttendStreamRequest StreamRequest(uint64_t id, const Step& step) {
  v1::AttendStreamRequest message;
  message.set_request_id(id);
  *message.mutable_attend() = MakeRequest({step});
  return message;
}

void ExpectRow(const Step& step, const PlainLayer& kv, const v1::AttendResponse& response) {
  const std::vector<float> out = Floats(response.out());
  constexpr int64_t kRow = kQHeads * kHeadDim;
  ASSERT_EQ(out.size(), step.q.size());
  const int64_t rows = static_cast<int64_t>(out.size()) / kRow;
  const PlainQuery last{.q_start = step.expected_len + rows - 1,
                        .kv_end = step.expected_len + rows};
  ExpectNear({out.end() - kRow, out.end()},
             PlainAttend(kv, {step.q.end() - kRow, step.q.end()}, last));
}

// The transport of a client that does not read takes no more than its first window.
grpc::ChannelArguments SmallWindow() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return arguments;
}

// Answers that nobody reads, more than the transport takes: a drain waits for them.
void LeaveUnread(Stubs& stubs, Stream& stream) {
  Random random(90);
  const uint64_t sequence = OpenOne(stubs, "lazy");
  PlainLayer kv;
  constexpr uint32_t kRequests = 60;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    Step step = AppendStep(random, sequence, 0, 1, &kv);
    step.q = RandomRows(random, 200, kQHeads);
    ASSERT_TRUE(stream.Write(StreamRequest(id, step)));
  }
  v1::DescribeSequencesRequest request;
  request.add_sequence_ids(sequence);
  for (uint32_t appended = 0; appended < kRequests;) {  // until all are answered
    grpc::ClientContext context;
    v1::DescribeSequencesResponse response;
    ASSERT_TRUE(stubs.sequences->DescribeSequences(&context, request, &response).ok());
    ASSERT_EQ(response.sequences_size(), 1);
    appended = response.sequences(0).layer_lens(0);
  }
}

void ExpectDraining(const grpc::Status& status) {
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
  const v1::Status detail = DetailOf(status);
  EXPECT_EQ(detail.reason(), v1::REASON_DRAINING);
  EXPECT_GT(detail.retry_after_ms(), 0u);
}

class OperationsTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& arguments) {
    server_ = std::make_unique<ServerProcess>(arguments);
    ASSERT_NE(server_->port(), 0) << "attn-server did not start";
    lazy_ = std::make_unique<Stubs>(server_->target(), SmallWindow());
    stubs_ = std::make_unique<Stubs>(server_->target());
    watcher_ = std::make_unique<HealthWatcher>(stubs_->channel, kDataPath);
    DeclareTiny(*stubs_);
    ASSERT_TRUE(watcher_->WaitFor(kServing, milliseconds(5000)));
  }

  // Health speaks a moment before calls are refused.
  grpc::Status CallUntilRefused(uint64_t sequence) {
    Random random(95);
    const Step read{.sequence = sequence, .layer = 1, .q = RandomRows(random, 1, kQHeads)};
    for (;;) {
      grpc::ClientContext context;
      v1::AttendResponse response;
      const grpc::Status status =
          stubs_->attention->Attend(&context, MakeRequest({read}), &response);
      if (!status.ok()) return status;
    }
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Stubs> stubs_;
  std::unique_ptr<Stubs> lazy_;
  std::unique_ptr<HealthWatcher> watcher_;
};

TEST_F(OperationsTest, ADrainIsToldByHealthAnswersWhatItAcceptedRefusesNewCallsAndEndsStreams) {
  Start({"--linger-ms=1000", "--grace-ms=20000"});
  Random random(91);
  const uint64_t id = OpenOne(*stubs_, "drained");
  PlainLayer kv;
  grpc::ClientContext context;
  const auto stream = stubs_->attention->AttendStream(&context);
  const Step prefill = AppendStep(random, id, 0, 6000, &kv);
  ASSERT_TRUE(stream->Write(StreamRequest(1, prefill)));
  v1::AttendStreamRequest ping;  // is answered at once, and the request before it is accepted then
  ping.set_request_id(2);
  ping.mutable_cancel();
  ASSERT_TRUE(stream->Write(ping));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_EQ(response.request_id(), 2u) << "the prefill is too short";
  server_->Signal(SIGTERM);
  ASSERT_TRUE(watcher_->WaitFor(kNotServing, milliseconds(5000)));
  ExpectDraining(CallUntilRefused(id));
  bool told = false;
  bool answered = false;
  while (stream->Read(&response)) {
    told |= response.flow().draining();
    if (!response.has_attend()) continue;
    answered = true;
    EXPECT_EQ(response.request_id(), 1u);
    ExpectRow(prefill, kv, response.attend());
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(answered);
  ExpectDraining(stream->Finish());
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->output(), HasSubstr("leaked_sequences=0 leaked_pages=0"));
}

TEST_F(OperationsTest, AClientThatReadsNothingHoldsUpTheEndNoLongerThanTheGrace) {
  Start({"--grace-ms=500", "--unread-ms=600000"});
  grpc::ClientContext context;
  const auto stream = lazy_->attention->AttendStream(&context);
  LeaveUnread(*stubs_, *stream);
  const auto began = steady_clock::now();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  const auto took = steady_clock::now() - began;
  EXPECT_GE(took, milliseconds(500));
  EXPECT_LT(took, milliseconds(1500));
}

TEST_F(OperationsTest, ASecondSignalEndsItAtOnce) {
  Start({"--grace-ms=600000", "--unread-ms=600000"});
  grpc::ClientContext context;
  const auto stream = lazy_->attention->AttendStream(&context);
  LeaveUnread(*stubs_, *stream);
  server_->Signal(SIGTERM);
  ASSERT_TRUE(watcher_->WaitFor(kNotServing, milliseconds(5000)));
  const auto began = steady_clock::now();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 1);
  EXPECT_LT(steady_clock::now() - began, milliseconds(1000));
}

TEST_F(OperationsTest, OptionsAreShownAtTheStartAndAWrongOneEndsItNamingTheFlag) {
  Start({"--grace-ms=1234", "--kv-bytes=32M"});
  EXPECT_THAT(server_->output(), HasSubstr("grace-ms=1234"));
  EXPECT_THAT(server_->output(), HasSubstr("kv-bytes=33554432"));
  EXPECT_EQ(server_->Stop(), 0);
  for (const char* wrong : {"--grace-ms=soon", "--threads=-1", "--no-such-flag=1", "stray"}) {
    ServerProcess refused({wrong});
    EXPECT_EQ(refused.port(), 0) << wrong;
    EXPECT_EQ(refused.Wait(), 2) << wrong;
  }
}

// ------------------------------------------------------------------------------------ under load

// Calls until it is refused. Every call ends, and ends right.
void AppendUntilRefused(const std::string& target, int number, std::atomic<int>* answered) {
  Stubs stubs(target);
  Random random(920 + static_cast<uint64_t>(number));
  const uint64_t id = OpenOne(stubs, "unary " + std::to_string(number));
  PlainLayer kv;
  for (;;) {
    const Step step = AppendStep(random, id, 0, 1, &kv);
    grpc::ClientContext context;
    v1::AttendResponse response;
    const grpc::Status status = stubs.attention->Attend(&context, MakeRequest({step}), &response);
    if (!status.ok()) return ExpectDraining(status);
    ExpectRow(step, kv, response);
    ++*answered;
  }
}

// The same on a stream with eight requests in flight. Those that were accepted are the first ones;
// each of them has its answer, in whatever order.
void StreamUntilRefused(const std::string& target, int number, std::atomic<int>* answered) {
  Stubs stubs(target);
  Random random(940 + static_cast<uint64_t>(number));
  const uint64_t id = OpenOne(stubs, "stream " + std::to_string(number));
  PlainLayer kv;
  grpc::ClientContext context;
  const auto stream = stubs.attention->AttendStream(&context);
  std::vector<Step> steps;
  std::set<uint64_t> answers;
  bool writing = true;
  v1::AttendStreamResponse response;
  for (;;) {
    while (writing && steps.size() < answers.size() + 8) {
      steps.push_back(AppendStep(random, id, 0, 1, &kv));
      writing = stream->Write(StreamRequest(steps.size(), steps.back()));
    }
    if (!stream->Read(&response)) break;
    if (response.flow().draining()) writing = false;
    if (response.has_status()) {
      EXPECT_EQ(response.status().reason(), v1::REASON_DRAINING);
      writing = false;
    } else if (response.has_attend()) {
      ASSERT_LE(response.request_id(), steps.size());
      ExpectRow(steps[response.request_id() - 1], kv, response.attend());
      EXPECT_TRUE(answers.insert(response.request_id()).second) << "a second answer";
      ++*answered;
    }
  }
  EXPECT_EQ(answers.empty() ? 0 : *answers.rbegin(), answers.size()) << "an answer is missing";
  ExpectDraining(stream->Finish());
}

TEST_F(OperationsTest, NoReplyIsLostWhenItIsStoppedUnderLoad) {
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    Start({"--linger-ms=1000", "--grace-ms=20000", "--max-queue-ms=0"});
    std::atomic<int> answered{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c) {
      clients.emplace_back(AppendUntilRefused, server_->target(), c, &answered);
      clients.emplace_back(StreamUntilRefused, server_->target(), c, &answered);
    }
    while (answered < 300) std::this_thread::yield();
    server_->Signal(SIGTERM);
    for (std::thread& client : clients) client.join();
    EXPECT_NE(watcher_->Since(kNotServing), steady_clock::time_point());
    EXPECT_EQ(server_->Wait(), 0);
    EXPECT_THAT(server_->output(), HasSubstr("leaked_sequences=0 leaked_pages=0"));
  }
}

// -------------------------------------------------------------------------------------- watchdog

TEST(WatchdogTest, ADeviceThatStandsStillIsReportedAndItsReturnToo) {
  auto device = std::make_shared<FakeDevice>();
  std::promise<void> release;
  device->on_launch = [released = release.get_future().share()](const Batch&) { released.wait(); };
  server::ServerOptions options = TestOptions();
  options.stall_time = 200 * kMillisecond;
  TestServer server(options, CreateFakeBackend(device));
  HealthWatcher data_path(server.stubs().channel, kDataPath);
  ASSERT_TRUE(data_path.WaitFor(kServing, milliseconds(5000)));
  Random random(93);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  const v1::AttendRequest request = MakeRequest({AppendStep(random, id, 0, 1, &kv)});
  auto call = std::async(std::launch::async, [&] { return server.Attend(request); });
  EXPECT_TRUE(data_path.WaitFor(kNotServing, milliseconds(5000)));
  EXPECT_EQ(HealthOf(server.stubs().channel, ""), kServing) << "the process itself is well";
  release.set_value();
  EXPECT_TRUE(data_path.WaitFor(kServing, milliseconds(5000)));
  EXPECT_THAT(call.get().new_lens(), ElementsAre(1));
}

TEST(WatchdogTest, ALostDeviceIsReportedForGoodAndCallsAreSentElsewhere) {
  auto device = std::make_shared<FakeDevice>();
  server::ServerOptions options = TestOptions();
  options.stall_time = 200 * kMillisecond;
  TestServer server(options, CreateFakeBackend(device));
  HealthWatcher data_path(server.stubs().channel, kDataPath);
  ASSERT_TRUE(data_path.WaitFor(kServing, milliseconds(5000)));
  Random random(94);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  device->next_wait_error = MakeError(Reason::kDeviceLost, "", "gone");
  const v1::AttendRequest request = MakeRequest({AppendStep(random, id, 0, 1, &kv)});
  EXPECT_THAT(server.Attend(request).item_reasons(), ElementsAre(v1::REASON_DEVICE_LOST));
  EXPECT_TRUE(data_path.WaitFor(kNotServing, milliseconds(5000)));
  v1::Status detail;
  EXPECT_EQ(server.AttendStatus(request, &detail).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(detail.reason(), v1::REASON_DEVICE_LOST);
  server.Close({id});  // what needs no device goes on
  EXPECT_FALSE(data_path.WaitFor(kServing, milliseconds(500)));
}

}  // namespace
}  // namespace attn::test
