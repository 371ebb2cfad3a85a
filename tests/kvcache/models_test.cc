// Models and ids: what a model may look like, how slabs travel between models, which ids mean what.
#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ModelsTest = CacheFixture;

TEST_F(ModelsTest, TheExampleOfTheHeaderWorks) {
  const Nanos now = 0;
  KvCache cache({.budget_bytes = int64_t{1} << 30});
  const CacheGroup group = {.layers = {0, 1}, .page_bytes = 65536};
  ModelSlot model = cache.AddModel({.num_layers = 2, .page_size = 16, .groups = {group}}).value();
  SequenceId id = cache.Open({.model = model, .owner = "me"}, now).value();
  Reservation r = cache.Extend({.sequence = id, .layer = 0, .count = 7, .append_token = 1}).value();
  EXPECT_THAT(r.moves(), IsEmpty());
  EXPECT_EQ(cache.TableOf(id, 0).num_pages, 1);
  r.Commit();
  EXPECT_EQ(cache.LengthOf(id, 0), 7u);
}

TEST_F(ModelsTest, AModelMustPlaceEveryLayerExactlyOnceAndFitTheBudget) {
  Start({.budget_bytes = 1000});
  CacheModel bad = OneGroup(2, 4);
  bad.num_layers = UINT32_MAX;
  EXPECT_EQ(FieldOf(cache_->AddModel(bad).status()), "groups");
  bad = OneGroup(2, 4);
  bad.groups[0].layers = {1, 1};
  EXPECT_EQ(FieldOf(cache_->AddModel(bad).status()), "groups[0].layers");
  bad.groups[0].layers = {0, UINT32_MAX};
  EXPECT_EQ(FieldOf(cache_->AddModel(bad).status()), "groups[0].layers");
  bad = OneGroup(2, 0);
  EXPECT_EQ(FieldOf(cache_->AddModel(bad).status()), "page_size");
  bad = OneGroup(2, 4, 0);
  EXPECT_THAT(cache_->AddModel(bad), FailsWith(Reason::kInvalid));
  bad = OneGroup(2, 4, 1001);
  EXPECT_THAT(cache_->AddModel(bad), FailsWith(Reason::kTooLarge));
  bad = OneGroup(2, 4, INT64_MAX);
  EXPECT_THAT(cache_->AddModel(bad), FailsWith(Reason::kTooLarge));
  bad = {.num_layers = 0, .page_size = 4, .groups = {}};
  EXPECT_EQ(FieldOf(cache_->AddModel(bad).status()), "num_layers");
  bad = {.num_layers = 2,
         .page_size = 4,
         .groups = {{.layers = {0}, .page_bytes = 501}, {.layers = {1}, .page_bytes = 500}}};
  EXPECT_THAT(cache_->AddModel(bad), FailsWith(Reason::kTooLarge));
  EXPECT_TRUE(cache_->AddModel(OneGroup(2, 4, 1000)).ok());
}

TEST_F(ModelsTest, GeometryStaysWithinPageIdsAndTheBudget) {
  for (const int64_t budget : {int64_t{1}, int64_t{1} << 20, int64_t{1} << 30, int64_t{1} << 42}) {
    KvCache cache({.budget_bytes = budget});
    for (int64_t page_bytes = 1; page_bytes <= budget; page_bytes = page_bytes * 3 + 1) {
      const PoolGeometry geometry = cache.GeometryOf(OneGroup(1, 16, page_bytes), 0);
      const int64_t slab_bytes = geometry.pages_per_slab * page_bytes;
      ASSERT_GT(geometry.pages_per_slab, 0) << budget << " " << page_bytes;
      EXPECT_EQ(geometry.pages_per_slab & (geometry.pages_per_slab - 1), 0);
      EXPECT_EQ(geometry.num_pages % geometry.pages_per_slab, 0);
      EXPECT_GT(geometry.num_pages, 0);
      EXPECT_LE(geometry.num_pages * page_bytes, budget);
      EXPECT_LE(slab_bytes, std::max(page_bytes, int64_t{32} << 20));
      if (budget >= int64_t{1} << 30 && page_bytes < int64_t{1} << 20) {
        EXPECT_GE(slab_bytes, int64_t{2} << 20);
      }
    }
  }
}

TEST_F(ModelsTest, IdsOfARemovedModelStayStaleWhenItsSlotIsUsedAgain) {
  Start({.budget_bytes = 1000});
  const ModelSlot slot = AddModel(OneGroup(1, 4));
  const SequenceId old = Open(slot);
  EXPECT_THAT(cache_->RemoveModel(slot), FailsWith(Reason::kModelInUse));
  ASSERT_EQ(cache_->Close(old), absl::OkStatus());
  ASSERT_EQ(cache_->RemoveModel(slot), absl::OkStatus());
  EXPECT_THAT(cache_->RemoveModel(slot), FailsWith(Reason::kUnknownModel));
  EXPECT_THAT(cache_->Open({.model = slot, .owner = "me"}, now_), FailsWith(Reason::kUnknownModel));
  EXPECT_THAT(cache_->CheckOpen(old), FailsWith(Reason::kStaleSequence));
  ASSERT_EQ(cache_->AddModelAt(slot, OneGroup(2, 8)), absl::OkStatus());
  EXPECT_THAT(cache_->AddModelAt(slot, OneGroup(2, 8)), FailsWith(Reason::kModelExists));
  EXPECT_THAT(cache_->AddModelAt(ModelSlot(0), OneGroup(2, 8)), FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->CheckOpen(old), FailsWith(Reason::kStaleSequence));
  EXPECT_NE(cache_->NextId(slot), old);
}

TEST_F(ModelsTest, UnknownAndStaleIdsAreToldApart) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  EXPECT_GE(id.value, uint64_t{1} << 48);
  EXPECT_EQ(SlotOf(id), model);
  const std::vector<SequenceId> never = {
      SequenceId(0),
      SequenceId(1),
      SequenceId(UINT64_MAX),
      SequenceId(id.value + 1),
      MakeSequenceId(model, 0),
      MakeSequenceId(ModelSlot(static_cast<uint16_t>(model.value + 1)), CounterOf(id))};
  for (const SequenceId unknown : never) {
    EXPECT_THAT(cache_->CheckOpen(unknown), FailsWith(Reason::kUnknownSequence)) << unknown.value;
    EXPECT_THAT(cache_->Close(unknown), FailsWith(Reason::kUnknownSequence)) << unknown.value;
  }
  ASSERT_EQ(cache_->Close(id), absl::OkStatus());
  EXPECT_EQ(cache_->Close(id), absl::OkStatus());
  const absl::Status stale = cache_->CheckOpen(id, "sequence_ids[3]");
  EXPECT_THAT(stale, FailsWith(Reason::kStaleSequence));
  EXPECT_EQ(FieldOf(stale), "sequence_ids[3]");
  EXPECT_THAT(Extend(Open(model), 0, 1), FailsWith(Reason::kOk));
  EXPECT_THAT(cache_->Extend({.sequence = id, .count = 1, .append_token = 1}),
              FailsWith(Reason::kStaleSequence));
  EXPECT_THAT(cache_->Truncate(id, 0), FailsWith(Reason::kStaleSequence));
  EXPECT_THAT(cache_->Describe(id, now_), FailsWith(Reason::kStaleSequence));
}

TEST_F(ModelsTest, AnIdIsOpenedOnceAndOnlyInItsModel) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const ModelSlot other = AddModel(OneGroup(1, 4));
  const SequenceId id = cache_->NextId(model);
  EXPECT_THAT(cache_->OpenAt(id, {.model = other, .owner = "me"}, now_),
              FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->OpenAt(SequenceId(id.value + 1), {.model = model, .owner = "me"}, now_),
              FailsWith(Reason::kInvalid));
  EXPECT_EQ(cache_->OpenAt(id, {.model = model, .owner = "me"}, now_), absl::OkStatus());
  EXPECT_THAT(cache_->OpenAt(id, {.model = model, .owner = "me"}, now_),
              FailsWith(Reason::kInvalid));
  const SequenceId child = cache_->NextId(model);
  const std::vector<SequenceId> repeated = {child, child}, foreign = {cache_->NextId(other)};
  EXPECT_THAT(cache_->Fork(id, 0, repeated), FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->Fork(id, 0, foreign), FailsWith(Reason::kInvalid));
  EXPECT_EQ(cache_->Stats().num_sequences, 1);
}

TEST_F(ModelsTest, TooManySequencesAreAQuotaErrorBeforeAnyIsMade) {
  Start({.budget_bytes = 1000, .max_sequences = 3});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  const SequenceId id = Open(model);
  std::vector<SequenceId> children;
  for (int i = 0; i < 3; ++i) children.push_back(cache_->NextId(model));
  EXPECT_THAT(cache_->Fork(id, 0, children), FailsWith(Reason::kQuota));
  EXPECT_EQ(cache_->Stats().num_sequences, 1);
  children.pop_back();
  EXPECT_EQ(cache_->Fork(id, 0, children), absl::OkStatus());
  const absl::StatusOr<SequenceId> refused = cache_->Open({.model = model, .owner = "me"}, now_);
  EXPECT_THAT(refused, FailsWith(Reason::kQuota));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("want at most 3"));
}

TEST_F(ModelsTest, AMillionOpensAndClosesLeaveNothingBehind) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  for (int i = 0; i < 1'000'000; ++i) {
    const SequenceId id = cache_->Open({.model = model, .owner = "me"}, now_).value();
    ASSERT_TRUE(cache_->Close(id).ok());
  }
  EXPECT_EQ(cache_->Stats().num_sequences, 0);
  EXPECT_EQ(cache_->Stats().backed_bytes, 0);
  EXPECT_EQ(cache_->NextExpiry(), kNever);
}

TEST_F(ModelsTest, OnlyWrittenTokensTakePages) {
  const uint32_t page_size = 16;
  Start({.budget_bytes = 10'000'000});
  const ModelSlot model = AddModel(
      {.num_layers = 4,
       .page_size = page_size,
       .groups = {{.layers = {0, 1, 2}, .page_bytes = 300}, {.layers = {3}, .page_bytes = 100}}});
  for (int i = 0; i < 100; ++i) {
    const SequenceId id = Open(model);
    ASSERT_EQ(AppendToAll(id, 64, 0), absl::OkStatus());
  }
  EXPECT_EQ(NumUsed(model, 0), 100 * (64 / page_size));
  EXPECT_EQ(NumUsed(model, 1), 100 * (64 / page_size));
  EXPECT_EQ(cache_->Stats().live_bytes, 100 * (64 / page_size) * 400);
}

}  // namespace
}  // namespace attn::kvcache::test
