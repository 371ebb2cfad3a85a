// Open, fork, reorder, truncate, close, describe and renew through a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/test_server.h"

namespace attn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class LifecycleTest : public ::testing::Test {
 protected:
  // Both layers of `id` get `count` tokens, as in `kv`.
  void Fill(uint64_t id, int64_t count, PlainLayer kv[kLayers]) {
    std::vector<Step> steps;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      steps.push_back(AppendStep(random_, id, layer, count, &kv[layer]));
    }
    const v1::AttendResponse response = server_.Attend(MakeRequest(steps));
    ASSERT_THAT(response.errors(), SizeIs(0)) << response.errors(0).ShortDebugString();
  }
  void ExpectHolds(uint64_t id, const PlainLayer& kv) {
    const Step read{.sequence = id, .q = RandomRows(random_, 1, kQHeads)};
    ExpectNear(Floats(server_.Attend(MakeRequest({read})).out()),
               PlainAttend(kv, read.q, {.q_start = kv.len() - 1, .kv_end = kv.len()}));
  }
  v1::ForkSequencesResponse Fork(uint64_t parent, uint32_t children, int at_len = -1) {
    v1::ForkSequencesRequest request;
    v1::ForkSequencesRequest::Item* item = request.add_items();
    item->set_parent_id(parent);
    item->set_num_children(children);
    if (at_len >= 0) item->set_at_len(static_cast<uint32_t>(at_len));
    grpc::ClientContext context;
    v1::ForkSequencesResponse response;
    EXPECT_TRUE(server_.stubs().sequences->ForkSequences(&context, request, &response).ok());
    return response;
  }

  TestServer server_;
  Random random_{21};
};

TEST_F(LifecycleTest, ChildrenShareUntilEitherSideWrites) {
  const uint64_t parent = server_.OpenOne();
  PlainLayer kv[kLayers];
  Fill(parent, 21, kv);
  const v1::ForkSequencesResponse forked = Fork(parent, 2, 19);
  ASSERT_THAT(forked.child_ids(), SizeIs(2));
  PlainLayer child[2][kLayers];
  for (auto& layers : child) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      layers[layer] = kv[layer];
      layers[layer].Truncate(19);
    }
  }
  EXPECT_GT(server_.Describe(forked.child_ids(0)).num_shared_pages(), 0u);
  Fill(forked.child_ids(0), 2, child[0]);
  Fill(parent, 3, kv);
  Fill(forked.child_ids(1), 1, child[1]);
  ExpectHolds(parent, kv[0]);
  ExpectHolds(forked.child_ids(0), child[0][0]);
  ExpectHolds(forked.child_ids(1), child[1][0]);
  server_.Close({parent});
  ExpectHolds(forked.child_ids(0), child[0][0]);
  EXPECT_EQ(Fork(forked.child_ids(0), 1, 22).errors(0).status().reason(), v1::REASON_INVALID);
  server_.Close({forked.child_ids(0), forked.child_ids(1)});
  EXPECT_TRUE(server_.PagesComeBackWithin(std::chrono::seconds(2)));
}

TEST_F(LifecycleTest, ReorderGivesEveryTargetItsSourceAsItWas) {
  const std::vector<uint64_t> ids = server_.Open(3);
  PlainLayer kv[3][kLayers];
  for (int i = 0; i < 3; ++i) Fill(ids[i], 10 + i, kv[i]);
  v1::ReorderSequencesRequest request;
  const int source_of[3] = {1, 0, 0};
  for (int i = 0; i < 3; ++i) {
    request.add_targets(ids[i]);
    request.add_sources(ids[source_of[i]]);
  }
  grpc::ClientContext context;
  v1::ReorderSequencesResponse response;
  ASSERT_TRUE(server_.stubs().sequences->ReorderSequences(&context, request, &response).ok());
  for (int i = 0; i < 3; ++i) ExpectHolds(ids[i], kv[source_of[i]][0]);
}

TEST_F(LifecycleTest, TruncateCutsLayersThatAreLonger) {
  const uint64_t id = server_.OpenOne();
  PlainLayer kv[kLayers];
  Fill(id, 20, kv);
  v1::TruncateSequencesRequest request;
  for (const uint32_t len : {17u, 30u}) {
    request.add_items()->set_sequence_id(id);
    request.mutable_items(request.items_size() - 1)->set_len(len);
  }
  grpc::ClientContext context;
  v1::TruncateSequencesResponse response;
  ASSERT_TRUE(server_.stubs().sequences->TruncateSequences(&context, request, &response).ok());
  EXPECT_THAT(response.committed_lens(), ElementsAre(17, 0));
  ASSERT_THAT(response.errors(), SizeIs(1));
  EXPECT_EQ(response.errors(0).item(), 1u);
  EXPECT_EQ(response.errors(0).status().reason(), v1::REASON_INVALID);
  kv[0].Truncate(17);
  ExpectHolds(id, kv[0]);
}

TEST_F(LifecycleTest, DescribeTellsLengthsPagesAndLease) {
  const uint64_t id = server_.OpenOne("the owner");
  PlainLayer kv;
  server_.Attend(MakeRequest({AppendStep(random_, id, 1, 40, &kv)}));
  const v1::SequenceInfo info = server_.Describe(id);
  EXPECT_EQ(info.sequence_id(), id);
  EXPECT_EQ(info.model(), "tiny");
  EXPECT_EQ(info.owner(), "the owner");
  EXPECT_EQ(info.committed_len(), 0u);
  EXPECT_THAT(info.layer_lens(), ElementsAre(0, 40));
  EXPECT_EQ(info.num_pages(), 3u);
  EXPECT_GT(info.lease_remaining_ms(), 20'000u);
  EXPECT_LE(info.lease_remaining_ms(), 30'000u);
}

TEST_F(LifecycleTest, ClosedAndUnknownSequencesAreToldApart) {
  const std::vector<uint64_t> ids = server_.Open(2);
  server_.Close({ids[0]});
  server_.Close({ids[0]});  // again: no error
  Step closed{.sequence = ids[0], .q = RandomRows(random_, 1, kQHeads)};
  Step unknown{.sequence = ids[1] + 1000, .q = RandomRows(random_, 1, kQHeads)};
  Step good{.sequence = ids[1], .q = RandomRows(random_, 1, kQHeads)};
  const v1::AttendResponse response = server_.Attend(MakeRequest({closed, unknown, good}));
  EXPECT_THAT(response.item_reasons(),
              ElementsAre(v1::REASON_STALE_SEQUENCE, v1::REASON_UNKNOWN_SEQUENCE, v1::REASON_OK));
}

TEST_F(LifecycleTest, ARepeatedOpenWithItsKeyOpensNothing) {
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner("me");
  request.set_request_key(123);
  request.add_items();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::OpenSequencesResponse response;
    ASSERT_TRUE(server_.stubs().sequences->OpenSequences(&context, request, &response).ok());
    ids.push_back(response.sequence_ids(0));
  }
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_F(LifecycleTest, AFullPoolIsToldAndLosesNothing) {
  server::ServerOptions options = TestOptions();
  options.engine.kv_bytes = 4 << 20;
  TestServer small(options);
  const std::vector<uint64_t> ids = small.Open(2);
  // A layer's token takes 256 bytes of K and V: the second sequence meets a full pool, and a
  // sequence that could never fit is told so.
  v1::AttendResponse response;
  const auto append = [&](uint64_t id, int64_t count, PlainLayer* kv) {
    const PlainLayer before = *kv;
    Step step = AppendStep(random_, id, 0, count, kv);
    step.q.clear();
    response = small.Attend(MakeRequest({step}));
    if (response.errors_size() != 0) *kv = before;
    return response.errors_size() == 0;
  };
  PlainLayer first, second;
  ASSERT_TRUE(append(ids[0], 6000, &first));
  while (append(ids[1], 1000, &second)) {
  }
  EXPECT_THAT(response.item_reasons(), ElementsAre(v1::REASON_NO_PAGES));
  EXPECT_EQ(response.errors(0).status().code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(response.new_lens(), ElementsAre(second.len()));
  ASSERT_FALSE(append(ids[0], 20'000, &first));
  EXPECT_THAT(response.item_reasons(), ElementsAre(v1::REASON_TOO_LARGE));
  EXPECT_THAT(response.new_lens(), ElementsAre(6000));
  small.Close(ids);
  EXPECT_TRUE(small.PagesComeBackWithin(std::chrono::seconds(2)));
  const uint64_t next = small.OpenOne();
  PlainLayer fresh;
  EXPECT_THAT(small.Attend(MakeRequest({AppendStep(random_, next, 0, 64, &fresh)})).errors(),
              SizeIs(0));
}

}  // namespace
}  // namespace attn::test
