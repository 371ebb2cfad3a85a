// Blocking calls: what goes over the wire, what is retried, what errors look like.
#include "attn/client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "tests/client/fake_server.h"
#include "tests/client/request_maker.h"

namespace attn::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSequence = (uint64_t{1} << 48) + 5;

class ClientTest : public testing::Test {
 protected:
  std::unique_ptr<Client> Connect(uint32_t max_attempts = 6) {
    ClientOptions options;
    options.retry = FastRetry(max_attempts);
    auto client = Client::Connect(server_.target(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  FakeServer server_;
};

TEST_F(ClientTest, ConnectReadsLimitsAndEpoch) {
  const auto client = Connect();
  EXPECT_EQ(client->info().server_epoch, 77u);
  EXPECT_EQ(client->info().limits.max_items_per_request, 4096u);
}

TEST_F(ClientTest, ConnectToNobodyIsUnavailable) {
  server_.Stop();
  ClientOptions options;
  options.connect_timeout_ms = 100;
  const auto client = Client::Connect(server_.target(), options);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(client.status().message(), HasSubstr(server_.target()));
}

TEST_F(ClientTest, DeclareModelCarriesReasonAndFieldOfARefusal) {
  const auto client = Connect();
  ModelSpec spec;
  spec.name = "taken";
  const auto info = client->DeclareModel(spec);
  EXPECT_EQ(info.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(info.status()), Reason::kModelExists);
  EXPECT_EQ(FieldOf(info.status()), "spec.page_size");
  EXPECT_EQ(info.status().message(), "spec.page_size: got 16, want 32");
}

TEST_F(ClientTest, ListModelsReturnsTheModelsOfAllPages) {
  const auto client = Connect();
  const auto models = client->ListModels();
  ASSERT_TRUE(models.ok()) << models.status();
  std::vector<std::string> names;
  for (const ModelInfo& model : *models) names.push_back(model.spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model", "model2", "model3"}));
}

TEST_F(ClientTest, DeclareModelReturnsTheSpecAsDeclared) {
  const auto client = Connect();
  ModelSpec spec;
  spec.name = "m";
  spec.activation_dtype = DType::kBFloat16;
  spec.num_layers = 2;
  spec.page_size = 16;
  LayerGroup group;
  group.layers = {0, 1};
  group.num_q_heads = 8;
  group.num_kv_heads = 2;
  group.head_dim_qk = 64;
  group.softmax_scale = -0.5f;
  group.logit_soft_cap = 30;
  group.window.left = 0;
  group.sink_logits_per_head = 1;
  group.sink_logits.assign(16, 1.5f);
  spec.layer_groups = {group};
  const auto info = client->DeclareModel(spec);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->kv_bytes_per_token, 42u);
  EXPECT_EQ(info->spec.activation_dtype, DType::kBFloat16);
  ASSERT_EQ(info->spec.layer_groups.size(), 1u);
  const LayerGroup& got = info->spec.layer_groups[0];
  EXPECT_THAT(got.layers, ElementsAre(0, 1));
  EXPECT_EQ(got.softmax_scale, -0.5f);
  EXPECT_EQ(got.window.left, 0u);
  EXPECT_FALSE(got.window.right.has_value());
  EXPECT_EQ(got.sink_logits.size(), 16u);
}

TEST_F(ClientTest, AttendSendsEqualValuesOnceAndReturnsTheRowsOfAllItems) {
  const auto client = Connect();
  AttendItem longer = OneToken(kSequence + 1, 0, 3);
  longer.q_len = longer.kv_new_len = 4;
  RequestMaker maker({OneToken(kSequence, 0, 3), longer});
  maker.request().return_lse = true;
  const auto result = client->Attend(maker.request());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, maker.out());
  ASSERT_EQ(result->items.size(), 2u);
  EXPECT_EQ(result->items[1].new_len, 4u);
  EXPECT_FALSE(result->items[1].replayed);

  ASSERT_EQ(server_.attends().size(), 1u);
  const v1::AttendRequest sent = server_.attends()[0];
  EXPECT_EQ(sent.server_epoch(), 77u);
  EXPECT_THAT(sent.sequence_ids(), ElementsAre(kSequence, kSequence + 1));
  EXPECT_THAT(sent.layers(), ElementsAre(3));
  EXPECT_THAT(sent.q_lens(), ElementsAre(1, 4));
  EXPECT_THAT(sent.flags(), ElementsAre());
  EXPECT_THAT(sent.q_starts(), ElementsAre());
  ASSERT_EQ(sent.append_tokens_size(), 2);
  EXPECT_NE(sent.append_tokens(0), 0u);
  EXPECT_NE(sent.append_tokens(0), sent.append_tokens(1));
  EXPECT_TRUE(sent.return_lse());
  EXPECT_EQ(sent.k().raw().size(), 5 * RequestMaker::kDim * sizeof(float));
  EXPECT_EQ(sent.v().dtype(), v1::DATA_TYPE_FLOAT32);
}

TEST_F(ClientTest, TensorsThatDoNotFitTheItemsAreRefusedBeforeTheyAreSent) {
  const auto client = Connect();
  RequestMaker maker({OneToken(kSequence, 0), OneToken(kSequence + 1, 0)});
  maker.request().k.remove_suffix(1);
  const auto result = client->Attend(maker.request());
  EXPECT_EQ(ReasonOf(result.status()), Reason::kInvalid);
  EXPECT_EQ(FieldOf(result.status()), "k");
  EXPECT_THAT(server_.attends(), ElementsAre());
}

TEST_F(ClientTest, QueueFullIsRetriedWithTheSameAppendTokenAfterTheHint) {
  FakeServer::Faults faults;
  faults.refuse = [](int nth) {
    return nth < 2 ? WireError(Reason::kQueueFull, "", "busy", 30) : v1::Status();
  };
  server_.SetFaults(faults);
  const auto client = Connect();
  RequestMaker maker({OneToken(kSequence, 0)});
  const Nanos start = Clock::Real().Now();
  const auto result = client->Attend(maker.request());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(Clock::Real().Now() - start, 60 * kMillisecond);
  const auto attends = server_.attends();
  ASSERT_EQ(attends.size(), 3u);
  EXPECT_EQ(attends[0].append_tokens(0), attends[2].append_tokens(0));
}

TEST_F(ClientTest, AttemptsAreBounded) {
  FakeServer::Faults faults;
  faults.refuse = [](int) { return WireError(Reason::kDraining, "", "stopping"); };
  server_.SetFaults(faults);
  RequestMaker maker({OneToken(kSequence, 0)});
  const auto result = Connect(3)->Attend(maker.request());
  EXPECT_EQ(ReasonOf(result.status()), Reason::kDraining);
  EXPECT_EQ(server_.attends().size(), 3u);
}

TEST_F(ClientTest, FaultsOfTheRequestAreNeverRetried) {
  for (const Reason reason : {Reason::kInvalid, Reason::kUnsupported, Reason::kLengthMismatch,
                              Reason::kStaleSequence, Reason::kTooLarge, Reason::kInternal}) {
    FakeServer::Faults faults;
    // A hint that is not to be followed.
    faults.refuse = [reason](int) { return WireError(reason, "items", "no", 1); };
    server_.SetFaults(faults);
    const size_t before = server_.attends().size();
    RequestMaker maker({OneToken(kSequence, 0)});
    const auto result = Connect()->Attend(maker.request());
    EXPECT_EQ(ReasonOf(result.status()), reason);
    EXPECT_EQ(server_.attends().size(), before + 1) << NameOf(reason);
  }
}

TEST_F(ClientTest, ALostReplyAppendsOnceAndTellsThatItWasReplayed) {
  FakeServer::Faults faults;
  faults.drop_answer = [](int nth) { return nth % 7 == 6; };
  server_.SetFaults(faults);
  const auto client = Connect();
  int replayed = 0;
  for (uint32_t len = 0; len < 30; ++len) {
    RequestMaker maker({OneToken(kSequence, len)}, static_cast<float>(len));
    const auto result = client->Attend(maker.request());
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->FirstError().ok()) << result->FirstError();
    EXPECT_EQ(result->out, maker.out());
    EXPECT_EQ(result->items[0].new_len, len + 1);
    replayed += result->items[0].replayed ? 1 : 0;
  }
  EXPECT_EQ(server_.LengthOf(kSequence, 0), 30u);
  EXPECT_EQ(replayed, 4);
}

TEST_F(ClientTest, ARepeatedOpenReturnsTheFirstSequences) {
  FakeServer::Faults faults;
  faults.drop_answer = [](int nth) { return nth == 0; };
  server_.SetFaults(faults);
  const auto client = Connect();
  OpenRequest request;
  request.model = "m";
  request.owner = "o";
  request.num_sequences = 2;
  const auto first = client->OpenSequences(request);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto keys = server_.request_keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0], keys[1]);
  const auto second = client->OpenSequences(request);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(server_.request_keys()[2], keys[0]);
  EXPECT_EQ(second->sequences[0]->value, first->sequences[1]->value + 1) << "ids were wasted";
}

TEST_F(ClientTest, ItemsFailOneByOne) {
  const auto client = Connect();
  RequestMaker maker({OneToken(kSequence, 0), OneToken(kSequence + 1, 9)});
  const auto result = client->Attend(maker.request());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->items[0].status.ok());
  EXPECT_EQ(ReasonOf(result->items[1].status), Reason::kLengthMismatch);
  EXPECT_EQ(FieldOf(result->items[1].status), "expected_lens[1]");
  EXPECT_EQ(result->items[1].new_len, 0u);
  EXPECT_EQ(server_.attends().size(), 1u);
}

TEST_F(ClientTest, ARestartedServerIsNoticedAsStaleAndRefreshLearnsTheNewEpoch) {
  const auto client = Connect();
  server_.Stop();
  server_.SetEpoch(78);
  server_.Start();
  const auto infos = client->Describe({SequenceId(kSequence)});
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_EQ(ReasonOf((*infos)[0].status()), Reason::kStaleSequence);
  const auto info = client->Refresh();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->server_epoch, 78u);
  EXPECT_TRUE((*client->Describe({SequenceId(kSequence)}))[0].ok());
}

TEST_F(ClientTest, ALeaseKeeperRenewsAndTellsOfLostSequences) {
  const auto client = Connect();
  std::promise<SequenceId> lost;
  const auto keeper = client->KeepLease(
      "o", 60, [&](const std::vector<SequenceId>& ids) { lost.set_value(ids.at(0)); });
  EXPECT_EQ(lost.get_future().get(), SequenceId(123));
  EXPECT_GE(server_.num_renewals(), 2);
  EXPECT_TRUE(keeper->last_status().ok());
}

}  // namespace
}  // namespace attn::client
