// One byte budget over all pools: exhaustion, slabs that change hands, memory that is refused.
#include <set>
#include <tuple>

#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

class RecordingBacking : public SlabBacking {
 public:
  absl::Status CommitSlab(ModelSlot model, uint32_t group, int32_t slab) override {
    if (refuse) return absl::ResourceExhaustedError("the machine is full");
    EXPECT_TRUE(slabs.insert({model, group, slab}).second);
    return absl::OkStatus();
  }
  void ReleaseSlab(ModelSlot model, uint32_t group, int32_t slab) override {
    EXPECT_EQ(slabs.erase({model, group, slab}), 1u);
  }
  bool refuse = false;
  std::set<std::tuple<ModelSlot, uint32_t, int32_t>> slabs;
};

class BudgetTest : public CacheFixture {
 protected:
  ~BudgetTest() override { End(); }  // before backing_
  RecordingBacking backing_;
};

TEST_F(BudgetTest, AFullPoolRefusesForAsLongAsItIsFullAndWorksAfterAClose) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model), other = Open(model);
  ASSERT_EQ(Append(other, 0, Tokens(4, 0)), absl::OkStatus());
  ASSERT_EQ(Append(id, 0, Tokens(28, 0)), absl::OkStatus());
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Extend(id, 0, 1), FailsWith(Reason::kNoPages));
  EXPECT_EQ(Contents(id), Tokens(28, 0));
  ASSERT_EQ(cache_->Close(id), absl::OkStatus());
  EXPECT_EQ(Append(other, 0, Tokens(28, 4)), absl::OkStatus());
  EXPECT_EQ(Contents(other), Tokens(32, 0));
}

TEST_F(BudgetTest, MemoryIsTakenSlabBySlabAsPagesAreNeeded) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  EXPECT_EQ(cache_->Stats().backed_bytes, 0);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(9, 0)), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 300);
  EXPECT_EQ(backing_.slabs.size(), 3u);
  EXPECT_EQ(cache_->StatsOf(model, 0).unbacked, 5);
}

TEST_F(BudgetTest, APoolInNeedTakesWhollyFreeSlabsOfOthers) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const ModelSlot first = AddModel(OneGroup(1, 4));
  const ModelSlot second = AddModel(OneGroup(1, 4, 200));
  const SequenceId gone = Open(first), kept = Open(first), id = Open(second);
  ASSERT_EQ(Append(gone, 0, Tokens(20, 0)), absl::OkStatus());
  ASSERT_EQ(Append(kept, 0, Tokens(12, 50)), absl::OkStatus());
  EXPECT_THAT(Extend(id, 0, 1), FailsWith(Reason::kNoPages));
  ASSERT_EQ(cache_->Close(gone), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 800);
  EXPECT_THAT(Extend(id, 0, 9), FailsWith(Reason::kNoPages));
  ASSERT_EQ(Append(id, 0, Tokens(8, 100)), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 800);
  EXPECT_EQ(cache_->StatsOf(first, 0).free, 1);
  EXPECT_EQ(Contents(kept), Tokens(12, 50));
  EXPECT_EQ(Contents(id), Tokens(8, 100));
}

TEST_F(BudgetTest, ARefusedAppendTakesNoSlabFromAnyone) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const ModelSlot first = AddModel(OneGroup(1, 4)), second = AddModel(OneGroup(1, 4));
  const SequenceId gone = Open(first), kept = Open(first), id = Open(second);
  ASSERT_EQ(Append(gone, 0, Tokens(16, 0)), absl::OkStatus());
  ASSERT_EQ(Append(kept, 0, Tokens(16, 0)), absl::OkStatus());
  ASSERT_EQ(cache_->Close(gone), absl::OkStatus());
  const auto slabs = backing_.slabs;
  EXPECT_THAT(Extend(id, 0, 17), FailsWith(Reason::kNoPages));
  EXPECT_EQ(backing_.slabs, slabs);
}

TEST_F(BudgetTest, MemoryThatIsRefusedIsNoPagesAndNothingChanges) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(6, 0)), absl::OkStatus());
  backing_.refuse = true;
  const absl::StatusOr<Reservation> refused = Extend(id, 0, 10);
  EXPECT_THAT(refused, FailsWith(Reason::kNoPages));
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr("the machine is full"));
  EXPECT_EQ(NumUsed(model), 2);
  EXPECT_EQ(Append(id, 0, Tokens(2, 6)), absl::OkStatus());
  backing_.refuse = false;
  EXPECT_EQ(Append(id, 0, Tokens(8, 8)), absl::OkStatus());
  EXPECT_EQ(Contents(id), Tokens(16, 0));
}

TEST_F(BudgetTest, ARemovedModelReturnsItsSlabs) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(32, 0)), absl::OkStatus());
  ASSERT_EQ(cache_->Close(id), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 800);
  ASSERT_EQ(cache_->RemoveModel(model), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 0);
  EXPECT_TRUE(backing_.slabs.empty());
}

TEST_F(BudgetTest, ACacheThatEndsGivesAllSlabsBack) {
  Start({.budget_bytes = 800, .backing = &backing_});
  const SequenceId id = Open(AddModel(OneGroup(1, 4)));
  ASSERT_EQ(Append(id, 0, Tokens(32, 0)), absl::OkStatus());
  End();
  EXPECT_TRUE(backing_.slabs.empty());
}

TEST_F(BudgetTest, TruncationGivesPagesBackButKeepsWhatOtherLayersNeed) {
  const ModelSlot model = Start(OneGroup(2, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(16, 0)), absl::OkStatus());
  ASSERT_EQ(Append(id, 1, Tokens(5, 0)), absl::OkStatus());
  EXPECT_EQ(cache_->Truncate(id, 9).value(), 5u);
  EXPECT_EQ(NumUsed(model), 3);
  EXPECT_THAT(cache_->Truncate(id, 10), FailsWith(Reason::kInvalid));
  EXPECT_EQ(cache_->Truncate(id, 2).value(), 2u);
  EXPECT_EQ(NumUsed(model), 1);
  EXPECT_EQ(cache_->Truncate(id, 0).value(), 0u);
  EXPECT_EQ(NumUsed(model), 0);
}

}  // namespace
}  // namespace attn::kvcache::test
