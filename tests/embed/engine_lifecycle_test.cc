// Models and sequences of the embedder's engine, and what its border refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "attn/engine/engine.h"
#include "tests/embed/embedded_step.h"

namespace attn::engine {
namespace {

class EngineLifecycleTest : public ::testing::Test {
 protected:
  // A sequence with `len` tokens in every layer.
  SequenceId Filled(uint32_t len) {
    const SequenceId id = engine_->Open("model", "me").value();
    EmbeddedStep step(len);
    KeptLayer kept[kTestLayers];
    for (uint32_t layer = 0; layer < kTestLayers; ++layer) step.Add(id, layer, kept[layer], 0, len);
    EXPECT_TRUE(engine_->Attend(step.Request())->FirstError().ok());
    return id;
  }
  uint32_t LengthOf(SequenceId id) { return engine_->Describe({id})->front()->committed_len; }

  std::unique_ptr<Engine> engine_ = TestEngine();
};

TEST_F(EngineLifecycleTest, ChildrenOfAForkHaveTheLengthThatWasAskedFor) {
  const SequenceId parent = Filled(7);
  const std::vector<ForkItem> items = {{.parent = parent, .at_len = 5, .num_children = 2},
                                       {.parent = parent, .at_len = 8},
                                       {.parent = parent}};
  const auto forked = engine_->Fork(items);
  ASSERT_TRUE(forked.ok()) << forked.status();
  ASSERT_EQ((*forked)[0]->size(), 2u);
  EXPECT_EQ(LengthOf((*forked)[0]->at(1)), 5u);
  EXPECT_EQ(FieldOf((*forked)[1].status()), "items[1].at_len");
  EXPECT_EQ(LengthOf((*forked)[2]->front()), 7u);
  EXPECT_EQ(engine_->stats().forked_sequences, 3u);
}

TEST_F(EngineLifecycleTest, ReorderTruncateAndCloseActOnEverySequence) {
  const SequenceId a = Filled(3), b = Filled(6);
  ASSERT_TRUE(engine_->Reorder({a, b}, {b, a}).ok());
  EXPECT_EQ(LengthOf(a), 6u);
  EXPECT_EQ(LengthOf(b), 3u);
  const std::vector<TruncateItem> cuts = {{a, 2}, {b, 9}};
  const auto cut = engine_->Truncate(cuts);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(*(*cut)[0], 2u);
  EXPECT_EQ(FieldOf((*cut)[1].status()), "items[1].len");
  const auto closed = engine_->Close({a, SequenceId(5), a});
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_TRUE((*closed)[0].ok());
  EXPECT_EQ(FieldOf((*closed)[1]), "sequence_ids[1]");
  EXPECT_TRUE((*closed)[2].ok());
  const auto described = engine_->Describe({a, b});
  EXPECT_EQ(ReasonOf((*described)[0].status()), Reason::kStaleSequence);
  EXPECT_EQ((*described)[1]->owner, "me");
  EXPECT_THAT((*described)[1]->layer_lens, ::testing::ElementsAre(3, 3));
  EXPECT_EQ(engine_->stats().cache.num_sequences, 1);
}

TEST_F(EngineLifecycleTest, SequencesEndWithTheirLeaseUnlessItIsRenewed) {
  const auto opened = engine_->OpenSequences(
      {.model = "model", .owner = "short", .num_sequences = 2, .lease = kMillisecond});
  ASSERT_TRUE(opened.ok() && opened->front().ok());
  const auto kept =
      engine_->OpenSequences({.model = "model", .owner = "long", .lease = kMillisecond});
  EXPECT_EQ(engine_->RenewLease("long", 3600 * kSecond).value(), 1u);
  const Nanos give_up = Clock::Real().Now() + 10 * kSecond;
  while (engine_->stats().expired_sequences == 0 && Clock::Real().Now() < give_up) engine_->Poll();
  EXPECT_EQ(engine_->stats().expired_sequences, 2u);
  EXPECT_EQ(ReasonOf(engine_->Describe({*opened->front()})->front().status()),
            Reason::kStaleSequence);
  EXPECT_TRUE(engine_->Describe({*kept->front()})->front().ok());
}

TEST_F(EngineLifecycleTest, ModelsAreDeclaredOnceAndRemovedWhenNobodyUsesThem) {
  const auto again = engine_->DeclareModel(TestModel());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->already_declared);
  EXPECT_EQ(again->kv_bytes_per_token, kTestLayers * 2 * kTestDim * sizeof(float));
  ModelSpec other = TestModel();
  other.layer_groups[0].spec.score.softmax_scale = 2;
  EXPECT_EQ(ReasonOf(engine_->DeclareModel(other).status()), Reason::kModelExists);
  const SequenceId id = engine_->Open("model", "me").value();
  EXPECT_EQ(ReasonOf(engine_->RemoveModel("model")), Reason::kModelInUse);
  ASSERT_TRUE(engine_->Close({id}).ok());
  EXPECT_TRUE(engine_->RemoveModel("model").ok());
  EXPECT_EQ(ReasonOf(engine_->Open("model", "me").status()), Reason::kUnknownModel);
  EXPECT_EQ(ReasonOf(engine_->RemoveModel("model")), Reason::kUnknownModel);
}

TEST_F(EngineLifecycleTest, ADeclarationIsRefusedByTheFieldAtFault) {
  const auto field = [&](const std::function<void(ModelSpec&)>& change) {
    ModelSpec spec = TestModel();
    spec.name = "other";
    change(spec);
    return FieldOf(engine_->DeclareModel(spec).status());
  };
  EXPECT_EQ(field([](ModelSpec& s) { s.name = "a b"; }), "spec.name");
  EXPECT_EQ(field([](ModelSpec& s) { s.num_layers = 0; }), "spec.num_layers");
  EXPECT_EQ(field([](ModelSpec& s) { s.num_layers = 3; }), "spec.layer_groups");
  EXPECT_EQ(field([](ModelSpec& s) { s.page_size = 513; }), "spec.page_size");
  EXPECT_EQ(field([](ModelSpec& s) {
              s.layer_groups[0].layers = {0, 0};
            }),
            "spec.layer_groups[0].layers[1]");
  EXPECT_EQ(field([](ModelSpec& s) { s.layer_groups[0].spec.num_kv_heads = 0; }),
            "spec.layer_groups[0].num_kv_heads");
  EXPECT_EQ(field([](ModelSpec& s) {
              s.layer_groups[0].spec.score.softmax_scale = std::numeric_limits<float>::infinity();
            }),
            "spec.layer_groups[0].softmax_scale");
  EXPECT_EQ(field([](ModelSpec& s) {
              s.layer_groups[0].layers = {0};
              s.layer_groups.push_back({.layers = {1}, .spec = s.layer_groups[0].spec});
              s.layer_groups[1].spec.kv_dtype = DType::kBFloat16;
            }),
            "spec.layer_groups[1].spec");
}

TEST_F(EngineLifecycleTest, ACallIsRefusedByTheFieldAtFault) {
  const SequenceId id = engine_->Open("model", "me").value();
  const auto field = [&](const std::function<void(AttendRequest&, AttendItem&)>& change) {
    KeptLayer kept;
    EmbeddedStep step(1);
    AttendItem& item = step.Add(id, 0, kept, 1, 1);
    AttendRequest request = step.Request();
    change(request, item);
    const absl::StatusOr<AttendResult> result = engine_->Attend(request);
    return FieldOf(result.ok() ? result->FirstError() : result.status());
  };
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.items = {}; }), "sequence_ids");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.q.remove_suffix(1); }), "q");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.k = {}; }), "k");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.v.remove_prefix(4); }), "v");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.out.remove_suffix(4); }), "out");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.out_dtype = DType::kFloat16; }), "out");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.lse.remove_suffix(1); }), "lse");
  EXPECT_EQ(field([](AttendRequest& r, AttendItem&) { r.priority = static_cast<Priority>(9); }),
            "priority");
  EXPECT_EQ(field([](AttendRequest&, AttendItem& i) { i.layer = kTestLayers; }), "layers[0]");
  EXPECT_EQ(field([](AttendRequest&, AttendItem& i) { i.flags = 16; }), "flags[0]");
  EXPECT_EQ(field([](AttendRequest&, AttendItem& i) { i.sequence = SequenceId(3); }),
            "sequence_ids[0]");
  EXPECT_EQ(field([](AttendRequest&, AttendItem& i) { i.expected_len = 1u << 20; }),
            "expected_lens[0]");
  EXPECT_EQ(field([](AttendRequest&, AttendItem& i) { i.q_len = 1u << 21; }), "q_lens");
  EXPECT_EQ(FieldOf(engine_->Submit({}, nullptr)), "done");
}

TEST_F(EngineLifecycleTest, RequestsOfSequencesAreRefusedByTheFieldAtFault) {
  const SequenceId id = engine_->Open("model", "me").value();
  EXPECT_EQ(FieldOf(engine_->Open("model", "").status()), "owner");
  EXPECT_EQ(FieldOf(engine_->OpenSequences({.model = "model", .owner = "me", .lease = 0}).status()),
            "lease");
  EXPECT_EQ(
      FieldOf(
          engine_->OpenSequences({.model = "model", .owner = "me", .num_sequences = 0}).status()),
      "num_sequences");
  EXPECT_EQ(FieldOf(engine_->RenewLease("me", -1).status()), "lease");
  EXPECT_EQ(FieldOf(engine_->Reorder({id}, {})), "sources");
  EXPECT_EQ(FieldOf(engine_->Reorder({id, id}, {id, id})), "targets[1]");
  EXPECT_EQ(FieldOf(engine_->Close({}).status()), "sequence_ids");
  const std::vector<ForkItem> none = {{.parent = id, .num_children = 0}};
  EXPECT_EQ(FieldOf(engine_->Fork(none)->front().status()), "items[0].num_children");
  const std::vector<ForkItem> many = {{.parent = id, .num_children = 5000}};
  EXPECT_EQ(FieldOf(engine_->Fork(many).status()), "items.num_children");
}

TEST(EngineCreateTest, RefusesOptionsOutOfRangeByTheirNames) {
  const auto field = [](const EngineOptions& options) {
    return FieldOf(
        Engine::Create(options, test::CreateFakeBackend(std::make_shared<test::FakeDevice>()))
            .status());
  };
  EXPECT_EQ(field({.kv_bytes = 0}), "kv_bytes");
  EXPECT_EQ(field({.max_sequences = 0}), "max_sequences");
  EXPECT_EQ(field({.max_sequence_len = 0}), "max_sequence_len");
  EXPECT_EQ(field({.remembered_appends = 0}), "remembered_appends");
  EXPECT_EQ(field({.max_items = 0}), "max_items");
  EXPECT_EQ(field({.chunk_time = 1}), "chunk_time");
  EXPECT_EQ(field({.max_batch_wait = -1}), "max_batch_wait");
  EXPECT_EQ(field({.max_launch_items = 0}), "max_launch_items");
  EXPECT_EQ(field({.drain_grace = -1}), "drain_grace");
  EXPECT_EQ(FieldOf(Engine::Create({}, nullptr).status()), "backend");
}

TEST(EngineCreateTest, RefusesMoreItemsThanMayBeInFlight) {
  const std::unique_ptr<Engine> engine = TestEngine({.max_items = 2});
  KeptLayer kept;
  EmbeddedStep step(1);
  step.Add(engine->Open("model", "me").value(), 0, kept, 1, 1);
  const AttendRequest request = step.Request();
  int num_done = 0;
  const auto done = [&](const absl::StatusOr<AttendResult>&) { ++num_done; };
  EXPECT_TRUE(engine->Submit(request, done).ok());
  EXPECT_TRUE(engine->Submit(request, done).ok());
  EXPECT_EQ(ReasonOf(engine->Submit(request, done)), Reason::kQueueFull);
  while (engine->Poll()) {
  }
  EXPECT_EQ(num_done, 2);
}

}  // namespace
}  // namespace attn::engine
