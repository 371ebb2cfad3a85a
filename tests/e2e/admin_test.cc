// attn.v1.Admin through a real server: the figures of a scrape, and the open sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attn/v1/admin.grpc.pb.h"
#include "server/rpc/metrics_endpoint.h"
#include "tests/e2e/test_server.h"
#include "tests/metrics/scrape.h"
#include "tests/support/fake_backend.h"

namespace attn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

server::ServerOptions WithMetrics() {
  server::ServerOptions options = TestOptions();
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

class AdminTest : public ::testing::Test {
 protected:
  v1::GetStatsResponse Stats() {
    grpc::ClientContext context;
    v1::GetStatsResponse response;
    EXPECT_TRUE(admin_->GetStats(&context, {}, &response).ok());
    return response;
  }
  v1::ListSequencesResponse List(const v1::ListSequencesRequest& request = {}) {
    grpc::ClientContext context;
    v1::ListSequencesResponse response;
    EXPECT_TRUE(admin_->ListSequences(&context, request, &response).ok());
    return response;
  }
  v1::Status ListRefused(const v1::ListSequencesRequest& request) {
    grpc::ClientContext context;
    v1::ListSequencesResponse response;
    return DetailOf(admin_->ListSequences(&context, request, &response));
  }

  TestServer server_{WithMetrics()};
  std::unique_ptr<v1::Admin::Stub> admin_ = v1::Admin::NewStub(server_.stubs().channel);
  Random random_{77};
};

// As Prometheus writes them.
std::map<std::string, double> Flat(const v1::GetStatsResponse& stats) {
  std::map<std::string, double> values;
  for (const v1::MetricFamily& family : stats.families()) {
    for (const v1::MetricSample& sample : family.samples()) {
      std::vector<std::string> labels;
      for (int i = 0; i < family.label_names_size(); ++i) {
        labels.push_back(absl::StrCat(family.label_names(i), "=\"", sample.label_values(i), "\""));
      }
      const std::string braces =
          labels.empty() ? "" : absl::StrCat("{", absl::StrJoin(labels, ","), "}");
      if (family.type() != v1::METRIC_TYPE_HISTOGRAM) {
        values[family.name() + braces] = sample.value();
      } else {
        const auto& counts = sample.distribution().cumulative_counts();
        values[family.name() + "_count"] = static_cast<double>(*counts.rbegin());
        values[family.name() + "_sum"] = sample.distribution().sum();
      }
    }
  }
  return values;
}

TEST_F(AdminTest, StatsAreThoseOfAScrape) {
  const uint64_t id = server_.OpenOne();
  PlainLayer kv;
  for (int i = 0; i < 5; ++i) server_.Attend(MakeRequest({AppendStep(random_, id, 0, 3, &kv)}));
  server_.Describe(id);  // by its answer the engine has counted all before it
  const std::map<std::string, double> told = Flat(Stats());
  const std::map<std::string, double> scraped = Scrape(server_.server().metrics()->port());
  EXPECT_EQ(told.at("attn_calls_total{kind=\"attend\"}"), 5);
  EXPECT_EQ(told.at("attn_appended_tokens_total"), 15);
  // Asking counts as well, and the engine may have gone on stepping.
  const std::set<std::string> moving = {"attn_received_bytes_total", "attn_sent_bytes_total",
                                        "attn_steps_total", "attn_schedule_seconds_total",
                                        "attn_longest_step_seconds"};
  for (const auto& [name, value] : told) {
    ASSERT_TRUE(scraped.contains(name)) << name;
    if (moving.contains(name)) continue;
    EXPECT_DOUBLE_EQ(scraped.at(name), value) << name;
  }
  EXPECT_GT(told.size(), 60u);
}

TEST_F(AdminTest, EverySequenceIsListedOnceWhateverThePage) {
  std::set<uint64_t> opened;
  for (const uint64_t id : server_.Open(7, "one")) opened.insert(id);
  for (const uint64_t id : server_.Open(4, "two")) opened.insert(id);
  EXPECT_THAT(List().sequences(), SizeIs(11));
  EXPECT_THAT(List().next_page_token(), IsEmpty());
  for (const uint32_t max : {1u, 3u, 10u, 11u, 4'000'000'000u}) {
    std::set<uint64_t> listed;
    v1::ListSequencesRequest request;
    request.set_max_sequences(max);
    do {
      const v1::ListSequencesResponse page = List(request);
      EXPECT_LE(static_cast<uint32_t>(page.sequences_size()), max);
      for (const v1::SequenceSummary& sequence : page.sequences()) {
        EXPECT_TRUE(listed.insert(sequence.sequence_id()).second);
      }
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    EXPECT_EQ(listed, opened) << max;
  }
  v1::ListSequencesRequest two;
  two.set_owner("two");
  two.set_model("tiny");
  EXPECT_THAT(List(two).sequences(), SizeIs(4));
  two.set_owner("nobody");
  EXPECT_THAT(List(two).sequences(), SizeIs(0));
}

TEST_F(AdminTest, ASummaryTellsWhatDescribeTells) {
  const uint64_t id = server_.OpenOne("me");
  PlainLayer kv[kLayers];
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    server_.Attend(MakeRequest({AppendStep(random_, id, layer, 20 + layer, &kv[layer])}));
  }
  const v1::SequenceInfo info = server_.Describe(id);
  const v1::ListSequencesResponse list = List();
  ASSERT_THAT(list.sequences(), SizeIs(1));
  const v1::SequenceSummary& summary = list.sequences(0);
  EXPECT_EQ(summary.sequence_id(), id);
  EXPECT_EQ(summary.model(), "tiny");
  EXPECT_EQ(summary.owner(), "me");
  EXPECT_EQ(summary.committed_len(), info.committed_len());
  EXPECT_EQ(summary.longest_len(), 21u);
  EXPECT_EQ(summary.num_pages(), info.num_pages());
  EXPECT_GT(summary.lease_remaining_ms(), 0u);
  EXPECT_LE(summary.lease_remaining_ms(), info.lease_remaining_ms());
}

TEST_F(AdminTest, BadRequestsAreRefusedByField) {
  v1::ListSequencesRequest request;
  request.set_model("of nobody");
  EXPECT_EQ(ListRefused(request).field(), "model");
  EXPECT_EQ(ListRefused(request).reason(), v1::REASON_UNKNOWN_MODEL);
  request.clear_model();
  for (const char* token : {"x", "-1", "007", " 7", "18446744073709551616", "\x01"}) {
    request.set_page_token(token);
    EXPECT_EQ(ListRefused(request).field(), "page_token") << token;
    EXPECT_EQ(ListRefused(request).reason(), v1::REASON_INVALID);
  }
  request.set_page_token("18446744073709551615");
  EXPECT_THAT(List(request).sequences(), SizeIs(0));
  v1::ListSequencesRequest unknown;
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(9, 1);
  EXPECT_EQ(ListRefused(unknown).reason(), v1::REASON_UNSUPPORTED);
  EXPECT_EQ(ListRefused(unknown).field(), "9");
}

TEST(AdminOffTest, NothingIsToldWhereItIsOff) {
  server::ServerOptions options = TestOptions();
  options.admin = "off";
  TestServer server(options);
  grpc::ClientContext context;
  v1::GetStatsResponse response;
  const auto admin = v1::Admin::NewStub(server.stubs().channel);
  EXPECT_EQ(admin->GetStats(&context, {}, &response).error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(server.OpenOne(), ::testing::Gt(0u));
}

TEST(AdminStalledTest, StatsAreToldWhileTheDeviceStandsStill) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  auto device = std::make_shared<FakeDevice>();
  device->on_launch = [released](const Batch&) { released.wait(); };
  TestServer server(TestOptions(), CreateFakeBackend(device));
  const uint64_t id = server.OpenOne();
  Random random(5);
  std::thread caller([&] {
    PlainLayer kv;
    server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)}));
  });
  while (server.server().engine().queue().load().items < 1) std::this_thread::yield();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::GetStatsResponse response;
  EXPECT_TRUE(v1::Admin::NewStub(server.stubs().channel)->GetStats(&context, {}, &response).ok());
  EXPECT_EQ(Flat(response).at("attn_queue_items"), 1);
  release.set_value();
  caller.join();
}

}  // namespace
}  // namespace attn::test
