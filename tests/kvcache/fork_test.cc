// Copies of sequences: forks and reorders share pages until someone writes.
#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ForkTest = CacheFixture;

TEST_F(ForkTest, AForkReadsTheParentsPrefixAndTakesNoPages) {
  const ModelSlot model = Start(OneGroup(2, 4), 16);
  const SequenceId parent = Open(model, "me");
  ASSERT_EQ(AppendToAll(parent, 10, 0), absl::OkStatus());
  const SequenceId child = Fork(parent, 6)[0];
  EXPECT_EQ(NumUsed(model), 3);
  EXPECT_EQ(Contents(child, 0), Tokens(6, 0));
  EXPECT_EQ(Contents(child, 1), Tokens(6, 1000));
  EXPECT_EQ(cache_->OwnerOf(child), "me");
  const SequenceDescription description = cache_->Describe(parent, now_).value();
  EXPECT_EQ(description.num_pages, 3u);
  EXPECT_EQ(description.num_shared_pages, 2u);
}

TEST_F(ForkTest, AForkAboveTheCommittedLengthIsInvalid) {
  const ModelSlot model = Start(OneGroup(2, 4), 16);
  const SequenceId parent = Open(model);
  ASSERT_EQ(AppendToAll(parent, 4, 0), absl::OkStatus());
  ASSERT_EQ(Append(parent, 0, Tokens(1, 0)), absl::OkStatus());
  const std::vector<SequenceId> child = {cache_->NextId(model)};
  const absl::Status forked = cache_->Fork(parent, 5, child);
  EXPECT_THAT(forked, FailsWith(Reason::kInvalid));
  EXPECT_EQ(forked.message(), "at_len: got 5, want at most the committed length 4");
  EXPECT_THAT(cache_->CheckOpen(child[0]), FailsWith(Reason::kStaleSequence));
}

// A fork at a length inside a page, then an append to the child and one to the parent: the first
// writer copies one page, the other one then has the old page to itself.
TEST_F(ForkTest, WritingIntoASharedPageCopiesExactlyThatPage) {
  const ModelSlot model = Start(OneGroup(2, 4), 16);
  const SequenceId parent = Open(model);
  ASSERT_EQ(AppendToAll(parent, 6, 0), absl::OkStatus());
  const std::vector<PageId> pages = PagesOf(parent);
  const SequenceId child = Fork(parent, 6)[0];
  Reservation reservation = Extend(child, 0, 1).value();
  ASSERT_EQ(reservation.moves().size(), 1u);
  EXPECT_EQ(reservation.moves()[0].source, pages[1]);
  EXPECT_EQ(reservation.moves()[0].target, PagesOf(child)[1]);
  EXPECT_THAT(reservation.moves()[0].slots_per_layer, ElementsAre(2, 2));
  Write(reservation, child, 0, {77});
  reservation.Commit();
  reservation = Extend(child, 1, 1).value();
  EXPECT_THAT(reservation.moves(), IsEmpty());
  Write(reservation, child, 1, {78});
  reservation.Commit();
  reservation = Extend(parent, 0, 1).value();
  EXPECT_THAT(reservation.moves(), IsEmpty());
  Write(reservation, parent, 0, {6});
  reservation.Commit();
  EXPECT_EQ(PagesOf(parent), pages);
  EXPECT_EQ(Contents(parent, 0), Tokens(7, 0));
  EXPECT_EQ(Contents(parent, 1), Tokens(6, 1000));
  EXPECT_THAT(Contents(child, 0), ElementsAre(0, 1, 2, 3, 4, 5, 77));
  EXPECT_THAT(Contents(child, 1), ElementsAre(1000, 1001, 1002, 1003, 1004, 1005, 78));
  EXPECT_EQ(NumUsed(model), 3);
}

TEST_F(ForkTest, ACopyHoldsTheWritersOwnSlotsInEveryLayerAfterItsRewind) {
  const ModelSlot model = Start(OneGroup(3, 8), 16);
  const SequenceId parent = Open(model);
  ASSERT_EQ(AppendToAll(parent, 6, 0), absl::OkStatus());
  const SequenceId child = Fork(parent, 6)[0];
  ASSERT_EQ(Append(parent, 2, Tokens(9, 500)), absl::OkStatus());  // takes its own copy
  Fork(parent, 5);
  Reservation reservation = Rewind(parent, 1, 3, 2).value();
  ASSERT_EQ(reservation.moves().size(), 1u);
  EXPECT_THAT(reservation.moves()[0].slots_per_layer, ElementsAre(6, 3, 8));
  Write(reservation, parent, 1, {91, 92});
  reservation.Commit();
  EXPECT_THAT(Contents(parent, 1), ElementsAre(1000, 1001, 1002, 91, 92));
  EXPECT_EQ(Contents(parent, 0), Tokens(6, 0));
  EXPECT_EQ(Contents(child, 1), Tokens(6, 1000));
}

TEST_F(ForkTest, ARewindOntoSharedPagesCopiesOnlyPagesThatStillHoldSomething) {
  const ModelSlot model = Start(OneGroup(1, 4), 16);
  const SequenceId parent = Open(model);
  ASSERT_EQ(Append(parent, 0, Tokens(16, 0)), absl::OkStatus());
  const SequenceId child = Fork(parent, 16)[0];
  Reservation reservation = Rewind(parent, 0, 6, 8).value();
  ASSERT_EQ(reservation.moves().size(), 1u);
  EXPECT_THAT(reservation.moves()[0].slots_per_layer, ElementsAre(2));
  EXPECT_EQ(NumUsed(model), 7);
  Write(reservation, parent, 0, Tokens(8, 100));
  reservation.Commit();
  EXPECT_EQ(Contents(child), Tokens(16, 0));
  EXPECT_THAT(Contents(parent),
              ElementsAre(0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105, 106, 107));
}

TEST_F(ForkTest, AFailedRewindOntoSharedPagesChangesNothing) {
  const ModelSlot model = Start(OneGroup(1, 4), 5);
  const SequenceId parent = Open(model);
  ASSERT_EQ(Append(parent, 0, Tokens(16, 0)), absl::OkStatus());
  const SequenceId child = Fork(parent, 16)[0];
  EXPECT_THAT(Rewind(parent, 0, 6, 4), FailsWith(Reason::kNoPages));
  EXPECT_EQ(Contents(parent), Tokens(16, 0));
  EXPECT_EQ(PagesOf(parent), PagesOf(child));
  EXPECT_EQ(NumUsed(model), 4);
}

TEST_F(ForkTest, ARewindMayUseThePagesItGivesUp) {
  const ModelSlot model = Start(OneGroup(1, 4), 4);
  const SequenceId parent = Open(model);
  ASSERT_EQ(Append(parent, 0, Tokens(4, 0)), absl::OkStatus());
  const SequenceId child = Fork(parent, 4)[0];
  ASSERT_EQ(Append(child, 0, Tokens(12, 4)), absl::OkStatus());
  ASSERT_EQ(cache_->Stats().pages.free + cache_->Stats().pages.unbacked, 0);
  Reservation reservation = Rewind(child, 0, 2, 6).value();
  Write(reservation, child, 0, Tokens(6, 50));
  reservation.Commit();
  EXPECT_THAT(Contents(child), ElementsAre(0, 1, 50, 51, 52, 53, 54, 55));
  EXPECT_EQ(Contents(parent), Tokens(4, 0));
  EXPECT_EQ(NumUsed(model), 3);
}

TEST_F(ForkTest, ForksAndReorderTargetsRememberNoAppends) {
  const ModelSlot model = Start(OneGroup(1, 4), 16);
  const SequenceId parent = Open(model), target = Open(model);
  ExtendOptions options{.sequence = parent, .count = 4, .append_token = 9};
  cache_->Extend(options).value().Commit();
  options.sequence = Fork(parent, 4)[0];
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
  options.sequence = target;
  cache_->Extend(options).value().Commit();
  const std::vector<SequenceId> targets = {target}, sources = {parent};
  ASSERT_EQ(cache_->Reorder(targets, sources), absl::OkStatus());
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
  options.sequence = parent;
  EXPECT_TRUE(cache_->Extend(options).value().replayed());
}

TEST_F(ForkTest, ASequenceWithAnAppendInFlightIsNeitherCopiedNorCut) {
  const ModelSlot model = Start(OneGroup(2, 4), 16);
  const SequenceId busy = Open(model), idle = Open(model);
  ASSERT_EQ(AppendToAll(busy, 4, 0), absl::OkStatus());
  const std::vector<SequenceId> child = {cache_->NextId(model)};
  const std::vector<SequenceId> busy_list = {busy}, idle_list = {idle};
  Reservation reservation = Extend(busy, 1, 1).value();
  EXPECT_THAT(cache_->Fork(busy, 2, child), FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->Truncate(busy, 2), FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->Reorder(busy_list, idle_list), FailsWith(Reason::kInvalid));
  EXPECT_THAT(cache_->Reorder(idle_list, busy_list), FailsWith(Reason::kInvalid));
  reservation.Commit();
  EXPECT_EQ(cache_->Fork(busy, 2, child), absl::OkStatus());
}

// Four forks append past each other's ends and are closed in another order than made.
TEST_F(ForkTest, ForksClosedInAnyOrderGiveEveryPageBackOnce) {
  const ModelSlot model = Start(OneGroup(2, 4), 64);
  const SequenceId parent = Open(model);
  ASSERT_EQ(AppendToAll(parent, 10, 0), absl::OkStatus());
  const std::vector<SequenceId> children = Fork(parent, 9, 4);
  for (size_t i = 0; i < children.size(); ++i) {
    ASSERT_EQ(AppendToAll(children[i], 12, static_cast<Token>(100 * i)), absl::OkStatus());
  }
  for (const size_t i : {2, 0, 3, 1}) {
    std::vector<Token> expected = Tokens(9, 0);
    for (const Token token : Tokens(12, static_cast<Token>(100 * i))) expected.push_back(token);
    EXPECT_EQ(Contents(children[i]), expected);
    ASSERT_EQ(cache_->Close(children[i]), absl::OkStatus());
    EXPECT_EQ(cache_->CheckInvariants(), absl::OkStatus());
    EXPECT_EQ(cache_->Close(parent), absl::OkStatus());  // the second time it is closed already
  }
  EXPECT_EQ(NumUsed(model), 0);
}

// Beam search, four beams wide: each step permutes and duplicates parents, then appends to all.
TEST_F(ForkTest, BeamsKeepTheirOwnTokensThroughReorders) {
  const ModelSlot model = Start(OneGroup(2, 4), 300);
  std::vector<SequenceId> beams;
  std::vector<std::vector<Token>> expected(4);
  for (int i = 0; i < 4; ++i) beams.push_back(Open(model));
  const std::vector<std::vector<size_t>> picks = {{1, 0, 3, 2}, {0, 0, 0, 0}, {3, 3, 1, 1},
                                                  {0, 1, 2, 3}, {2, 3, 0, 0}, {1, 2, 3, 0}};
  Token next = 0;
  for (size_t step = 0; step < 200; ++step) {
    const std::vector<size_t>& pick = picks[step % picks.size()];
    std::vector<SequenceId> sources;
    std::vector<std::vector<Token>> picked;
    for (const size_t p : pick) {
      sources.push_back(beams[p]);
      picked.push_back(expected[p]);
    }
    const int64_t used = NumUsed(model);
    ASSERT_EQ(cache_->Reorder(beams, sources), absl::OkStatus());
    EXPECT_LE(NumUsed(model), used);
    expected = picked;
    for (size_t b = 0; b < beams.size(); ++b) {
      ASSERT_EQ(AppendToAll(beams[b], 1, ++next), absl::OkStatus());
      expected[b].push_back(next);
      ASSERT_EQ(Contents(beams[b], 0), expected[b]) << "step " << step << " beam " << b;
    }
  }
}

TEST_F(ForkTest, ARefusedReorderNamesTheItemAndChangesNothing) {
  const ModelSlot model = Start(OneGroup(1, 4), 16);
  const ModelSlot other_model = AddModel(OneGroup(1, 4));
  const SequenceId a = Open(model), b = Open(model), foreign = Open(other_model);
  ASSERT_EQ(Append(a, 0, Tokens(3, 0)), absl::OkStatus());
  ASSERT_EQ(Append(b, 0, Tokens(3, 10)), absl::OkStatus());
  using Ids = std::vector<SequenceId>;
  EXPECT_EQ(FieldOf(cache_->Reorder(Ids{a, b}, Ids{b})), "sources");
  EXPECT_EQ(FieldOf(cache_->Reorder(Ids{a, a}, Ids{b, b})), "targets[1]");
  EXPECT_EQ(FieldOf(cache_->Reorder(Ids{a, b}, Ids{b, foreign})), "sources[1]");
  EXPECT_THAT(cache_->Reorder(Ids{a, b}, Ids{b, SequenceId(5)}),
              FailsWith(Reason::kUnknownSequence));
  EXPECT_EQ(Contents(a), Tokens(3, 0));
  EXPECT_EQ(Contents(b), Tokens(3, 10));
}

// ---- lists of more than one chunk

TEST_F(ForkTest, ForksAtEveryEndOfAChunkShareAndSplitItRightly) {
  const ModelSlot model = Start(OneGroup(1, 1), 8000);
  const SequenceId parent = Open(model);
  ASSERT_EQ(Append(parent, 0, Tokens(2 * kPagesPerChunk + 3, 0)), absl::OkStatus());
  for (const int at_len : {1, kPagesPerChunk - 1, kPagesPerChunk, kPagesPerChunk + 1,
                           2 * kPagesPerChunk, 2 * kPagesPerChunk + 3}) {
    const SequenceId child = Fork(parent, static_cast<uint32_t>(at_len))[0];
    ASSERT_EQ(cache_->CheckInvariants(), absl::OkStatus());
    ASSERT_EQ(Append(child, 0, Tokens(2, 9000)), absl::OkStatus());
    std::vector<Token> expected = Tokens(static_cast<size_t>(at_len), 0);
    expected.insert(expected.end(), {9000, 9001});
    EXPECT_EQ(Contents(child), expected);
    EXPECT_EQ(cache_->Truncate(child, kPagesPerChunk - 2).ok(), at_len + 2 >= kPagesPerChunk - 2);
  }
  EXPECT_EQ(cache_->Truncate(parent, kPagesPerChunk + 1).value(), kPagesPerChunk + 1u);
  EXPECT_EQ(Contents(parent), Tokens(kPagesPerChunk + 1, 0));
}

}  // namespace
}  // namespace attn::kvcache::test
