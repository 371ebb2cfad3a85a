// What a scrape of a real server says: exact numbers after a scripted sequence of calls, an answer
// while the engine stands still and while the server drains, and clear errors at the start.
#include "server/rpc/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "attn/base/error.h"
#include "tests/e2e/test_server.h"
#include "tests/metrics/scrape.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

server::ServerOptions WithMetrics() {
  server::ServerOptions options = TestOptions();
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

int PortOf(TestServer& server) { return server.server().metrics()->port(); }

class MetricsEndpointTest : public ::testing::Test {
 protected:
  // Values now, with figures of the cache as new as the last answer: the engine publishes them
  // before it waits for the next call, so one more round trip does it.
  std::map<std::string, double> Values() {
    v1::RenewLeaseRequest request;
    request.set_owner("nobody");
    grpc::ClientContext context;
    v1::RenewLeaseResponse response;
    EXPECT_TRUE(server.stubs().sequences->RenewLease(&context, request, &response).ok());
    return Scrape(PortOf(server));
  }
  Step Append(uint64_t id, uint32_t layer, uint32_t expected_len, int64_t count, uint64_t token) {
    return {.sequence = id,
            .layer = layer,
            .expected_len = expected_len,
            .token = token,
            .q = RandomRows(random, count, kQHeads),
            .k = RandomRows(random, count, kKvHeads),
            .v = RandomRows(random, count, kKvHeads)};
  }
  v1::ForkSequencesResponse Fork(uint64_t parent, uint32_t children) {
    v1::ForkSequencesRequest request;
    v1::ForkSequencesRequest::Item* item = request.add_items();
    item->set_parent_id(parent);
    item->set_num_children(children);
    grpc::ClientContext context;
    v1::ForkSequencesResponse response;
    EXPECT_TRUE(server.stubs().sequences->ForkSequences(&context, request, &response).ok());
    return response;
  }

  TestServer server{WithMetrics()};
  Random random{94};
};

TEST_F(MetricsEndpointTest, AScriptedSequenceGivesExactNumbers) {
  const std::vector<uint64_t> ids = server.Open(3);
  const v1::AttendRequest first =
      MakeRequest({Append(ids[0], 0, 0, 5, 11), Append(ids[0], 1, 0, 5, 12)});
  server.Attend(first);
  for (int retry = 0; retry < 2; ++retry) server.Attend(first);
  server.Attend(MakeRequest({Append(ids[1], 0, 4, 1, 13)}));  // a length that is not so
  Fork(ids[0], 2);
  grpc::ClientContext context;
  v1::AttendResponse response;
  EXPECT_FALSE(server.stubs().attention->Attend(&context, v1::AttendRequest(), &response).ok());
  server.Close({ids[2]});

  std::map<std::string, double> values = Values();
  const std::vector<std::pair<std::string, double>> expected = {
      {"attn_calls_total{kind=\"attend\"}", 4},
      {"attn_calls_total{kind=\"open\"}", 1},
      {"attn_calls_total{kind=\"fork\"}", 1},
      {"attn_calls_total{kind=\"close\"}", 1},
      {"attn_calls_total{kind=\"declare_model\"}", 1},
      {"attn_items_total", 7},
      {"attn_failed_items_total", 1},
      {"attn_appended_tokens_total", 10},
      {"attn_replayed_items_total", 4},
      {"attn_opened_sequences_total", 3},
      {"attn_forked_sequences_total", 2},
      {"attn_open_sequences", 4},
      {"attn_expired_sequences_total", 0},
      {"attn_models", 1},
      {"attn_refused_items_total{at=\"engine\",reason=\"LENGTH_MISMATCH\"}", 1},
      {"attn_refused_calls_total{at=\"border\",reason=\"INVALID\"}", 1},
      {"attn_refused_calls_total{at=\"engine\",reason=\"INVALID\"}", 0},
      {"attn_call_seconds_count", 4},
      {"attn_queue_seconds_count", 3},
      // The two layers lie in groups of their own, so each call makes two launches.
      {"attn_launch_items_count", 6},
      {"attn_launch_items_sum", 6},
      {"attn_launch_clients_sum", 6},
      {"attn_launched_q_rows_total", 30},
      {"attn_pages{state=\"live\"}", 2},  // one of each group, shared by the forks
      {"attn_queue_items", 0},
      {"attn_serving", 1},
      {"attn_draining", 0},
  };
  for (const auto& [name, value] : expected) EXPECT_EQ(values[name], value) << name;
  EXPECT_GT(values["attn_received_bytes_total"], 0);
  EXPECT_GT(values["attn_sent_bytes_total"], 0);
}

TEST_F(MetricsEndpointTest, BucketsBeginAtFiftyMicrosecondsAndEndWithAll) {
  const uint64_t id = server.OpenOne();
  server.Attend(MakeRequest({Append(id, 0, 0, 1, 1)}));
  const std::string text = ScrapeText(PortOf(server));
  EXPECT_THAT(text, HasSubstr("attn_call_seconds_bucket{le=\"5e-05\"} "));
  EXPECT_THAT(text, HasSubstr("attn_call_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST_F(MetricsEndpointTest, OpenStreamsAndTheirCallsAreCounted) {
  grpc::ClientContext context;
  const auto stream = server.stubs().attention->AttendStream(&context);
  v1::AttendStreamRequest unnumbered;  // refused: request_id 0
  *unnumbered.mutable_attend() = v1::AttendRequest();
  ASSERT_TRUE(stream->Write(unnumbered));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::map<std::string, double> values = Values();
  EXPECT_EQ(values["attn_open_streams"], 1);
  EXPECT_EQ(values["attn_refused_calls_total{at=\"border\",reason=\"INVALID\"}"], 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(MetricsEndpointTest, TwoServersInOneProcessCountForThemselves) {
  TestServer other{WithMetrics()};
  server.Open(2);
  EXPECT_NE(PortOf(other), PortOf(server));
  EXPECT_EQ(Scrape(PortOf(server))["attn_opened_sequences_total"], 2);
  EXPECT_EQ(Scrape(PortOf(other))["attn_opened_sequences_total"], 0);
}

TEST_F(MetricsEndpointTest, ADrainedServerStillAnswers) {
  server.server().Drain();
  std::map<std::string, double> values = Scrape(PortOf(server));
  EXPECT_EQ(values["attn_draining"], 1);
  EXPECT_EQ(values["attn_serving"], 0);
}

TEST(MetricsOfAStalledEngineTest, AreServed) {
  auto device = std::make_shared<FakeDevice>();
  std::mutex mutex;
  std::condition_variable change;
  bool stands_still = false, goes_on = false;
  device->on_launch = [&](const Batch&) {
    std::unique_lock lock(mutex);
    stands_still = true;
    change.notify_all();
    change.wait(lock, [&] { return goes_on; });
  };
  TestServer server(WithMetrics(), CreateFakeBackend(device));
  const uint64_t id = server.OpenOne();
  std::thread caller([&] {
    Random random(1);
    PlainLayer kv;
    server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)}));
  });
  {
    std::unique_lock lock(mutex);
    change.wait(lock, [&] { return stands_still; });
  }
  std::map<std::string, double> values = Scrape(PortOf(server));
  EXPECT_EQ(values["attn_queue_items"], 1);
  EXPECT_EQ(values["attn_calls_in_flight"], 1);
  EXPECT_EQ(values["attn_call_seconds_count"], 0);
  {
    const std::lock_guard lock(mutex);
    goes_on = true;
  }
  change.notify_all();
  caller.join();
  EXPECT_EQ(Scrape(PortOf(server))["attn_call_seconds_count"], 1);
}

TEST(MetricsListenTest, AnAddressThatIsTakenIsRefusedByName) {
  TestServer server(WithMetrics());
  server::ServerOptions options = TestOptions();
  options.metrics_listen = server.server().metrics()->address();
  const auto second = server::Server::Start(options);
  EXPECT_EQ(FieldOf(second.status()), "--metrics-listen");
}

TEST(MetricsListenTest, WithoutTheOptionNothingListens) {
  TestServer server;
  EXPECT_EQ(server.server().metrics(), nullptr);
}

}  // namespace
}  // namespace attn::test
