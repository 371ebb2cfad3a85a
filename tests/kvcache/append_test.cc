// The append rule and what a reservation promises.
#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using AppendTest = CacheFixture;

TEST_F(AppendTest, CommittedTokensAreReadBackInOrder) {
  const ModelSlot model = Start(OneGroup(2, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(AppendToAll(id, 7, 10), absl::OkStatus());
  ASSERT_EQ(AppendToAll(id, 3, 17), absl::OkStatus());
  EXPECT_EQ(Contents(id, 0), Tokens(10, 10));
  EXPECT_EQ(Contents(id, 1), Tokens(10, 1010));
  EXPECT_EQ(cache_->CommittedLengthOf(id), 10u);
}

TEST_F(AppendTest, TheFirstLayerOverAPageBoundaryAllocatesAndLaterLayersFindThePage) {
  const ModelSlot model = Start(OneGroup(3, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 1, Tokens(5, 0)), absl::OkStatus());
  EXPECT_EQ(NumUsed(model), 2);
  const std::vector<PageId> pages = PagesOf(id);
  ASSERT_EQ(Append(id, 0, Tokens(5, 0)), absl::OkStatus());
  ASSERT_EQ(Append(id, 2, Tokens(5, 0)), absl::OkStatus());
  EXPECT_EQ(PagesOf(id), pages);
  EXPECT_EQ(cache_->CommittedLengthOf(id), 5u);
}

TEST_F(AppendTest, CommittedLengthIsTheLeastOfAllLayers) {
  const ModelSlot model = Start(OneGroup(3, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(5, 0)), absl::OkStatus());
  ASSERT_EQ(Append(id, 1, Tokens(3, 0)), absl::OkStatus());
  EXPECT_EQ(cache_->CommittedLengthOf(id), 0u);
  ASSERT_EQ(Append(id, 2, Tokens(4, 0)), absl::OkStatus());
  EXPECT_EQ(cache_->CommittedLengthOf(id), 3u);
}

TEST_F(AppendTest, PagesAreReservedUntilCommitMakesThemLive) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  Reservation reservation = Extend(id, 0, 9).value();
  EXPECT_EQ(reservation.begin(), 0u);
  EXPECT_EQ(reservation.end(), 9u);
  EXPECT_EQ(cache_->StatsOf(model, 0).reserved, 3);
  EXPECT_EQ(cache_->StatsOf(model, 0).live, 0);
  EXPECT_EQ(cache_->LengthOf(id, 0), 0u);
  EXPECT_EQ(cache_->CheckInvariants(), absl::OkStatus());
  reservation.Commit();
  EXPECT_EQ(cache_->StatsOf(model, 0).reserved, 0);
  EXPECT_EQ(cache_->StatsOf(model, 0).live, 3);
  EXPECT_EQ(cache_->LengthOf(id, 0), 9u);
}

TEST_F(AppendTest, DroppingAReservationReturnsItsPagesAndTheLengthStands) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(3, 0)), absl::OkStatus());
  {
    const absl::StatusOr<Reservation> reservation = Extend(id, 0, 9);
    ASSERT_EQ(NumUsed(model), 3);
  }
  EXPECT_EQ(NumUsed(model), 1);
  EXPECT_EQ(Contents(id), Tokens(3, 0));
}

TEST_F(AppendTest, AssigningOverAReservationRollsItBackAtOnce) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId one = Open(model), other = Open(model);
  Reservation reservation = Extend(one, 0, 8).value();
  reservation = Extend(other, 0, 4).value();
  EXPECT_EQ(PagesOf(one), std::vector<PageId>());
  reservation.Commit();
  EXPECT_EQ(cache_->LengthOf(other, 0), 4u);
}

TEST_F(AppendTest, RollbackOfOneLayerLeavesPagesThatAnotherLayerHasReserved) {
  const ModelSlot model = Start(OneGroup(2, 4), 8);
  const SequenceId id = Open(model);
  Reservation longer = Extend(id, 0, 10).value();
  {
    const absl::StatusOr<Reservation> shorter = Extend(id, 1, 5);
    ASSERT_TRUE(shorter.ok());
  }
  EXPECT_EQ(NumUsed(model), 3);
  const std::vector<PageId> pages = PagesOf(id);
  Reservation again = Extend(id, 1, 16).value();
  EXPECT_EQ(NumUsed(model), 4);
  again = Reservation();
  EXPECT_EQ(PagesOf(id), pages);
  Write(longer, id, 0, Tokens(10, 0));
  longer.Commit();
  EXPECT_EQ(Contents(id, 0), Tokens(10, 0));
}

TEST_F(AppendTest, AReservationOutlivingItsSequenceEndsWithoutEffect) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId one = Open(model), other = Open(model);
  Reservation committed_late = Extend(one, 0, 4).value();
  Reservation dropped_late = Extend(other, 0, 4).value();
  ASSERT_EQ(cache_->Close(one), absl::OkStatus());
  ASSERT_EQ(cache_->Close(other), absl::OkStatus());
  committed_late.Commit();
  dropped_late = Reservation();
  EXPECT_EQ(NumUsed(model), 0);
}

TEST_F(AppendTest, ASecondReservationOfALayerIsRefused) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  const Reservation first = Extend(id, 0, 2).value();
  EXPECT_THAT(Extend(id, 0, 2), FailsWith(Reason::kInvalid));
}

TEST_F(AppendTest, AnotherLengthIsAMismatchUnlessALongerLayerIsRewound) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(6, 0)), absl::OkStatus());
  ExtendOptions options{.sequence = id, .expected_len = 5, .count = 1, .append_token = 99};
  const absl::StatusOr<Reservation> shorter = cache_->Extend(options);
  EXPECT_THAT(shorter, FailsWith(Reason::kLengthMismatch));
  EXPECT_EQ(shorter.status().message(), "expected_len: got 5, want 6, the length of layer 0");
  options.expected_len = 7;
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
  options.rewind = true;
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
  options.expected_len = 5;
  EXPECT_TRUE(cache_->Extend(options).ok());
}

TEST_F(AppendTest, MalformedAppendsNameTheFieldTheValueAndTheLimit) {
  const ModelSlot model = Start(OneGroup(2, 4), 8);
  const SequenceId id = Open(model);
  const ExtendOptions good{.sequence = id, .layer = 1, .count = 1, .append_token = 1};
  ExtendOptions bad = good;
  bad.layer = 2;
  EXPECT_THAT(cache_->Extend(bad), FailsWith(Reason::kInvalid));
  EXPECT_EQ(cache_->Extend(bad).status().message(), "layer: got 2, want 0..1");
  bad = good;
  bad.count = 0;
  EXPECT_EQ(cache_->Extend(bad).status().message(), "count: got 0, want at least 1");
  bad = good;
  bad.append_token = 0;
  EXPECT_EQ(cache_->Extend(bad).status().message(), "append_token: got 0, want any other number");
  EXPECT_TRUE(cache_->Extend(good).ok());
}

TEST_F(AppendTest, HugeNumbersAreRefusedBeforeAnythingIsAllocated) {
  Start({.budget_bytes = 800, .max_sequence_len = UINT32_MAX});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  const SequenceId id = Open(model);
  EXPECT_THAT(Extend(id, 0, UINT32_MAX), FailsWith(Reason::kTooLarge));
  ASSERT_EQ(Append(id, 0, Tokens(3, 0)), absl::OkStatus());
  // 3 + 2^32 - 1 is 2 in 32 bits.
  EXPECT_THAT(Extend(id, 0, UINT32_MAX), FailsWith(Reason::kTooLarge));
  EXPECT_THAT(Rewind(id, 0, 1, UINT32_MAX - 1), FailsWith(Reason::kTooLarge));
  EXPECT_EQ(Contents(id), Tokens(3, 0));
  EXPECT_EQ(NumUsed(model), 1);
}

TEST_F(AppendTest, OneTokenOverTheLongestAllowedSequenceIsTooLarge) {
  Start({.budget_bytes = 800, .max_sequence_len = 9});
  const ModelSlot model = AddModel(OneGroup(1, 4));
  const SequenceId id = Open(model);
  EXPECT_THAT(Extend(id, 0, 10), FailsWith(Reason::kTooLarge));
  EXPECT_EQ(Append(id, 0, Tokens(9, 0)), absl::OkStatus());
  EXPECT_THAT(Extend(id, 0, 1), FailsWith(Reason::kTooLarge));
}

TEST_F(AppendTest, WhatCanNeverFitIsTooLargeAndWhatDoesNotFitNowIsNoPages) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId other = Open(model), id = Open(model);
  ASSERT_EQ(Append(other, 0, Tokens(4, 0)), absl::OkStatus());
  EXPECT_THAT(Extend(id, 0, 33), FailsWith(Reason::kTooLarge));
  EXPECT_THAT(Extend(id, 0, 32), FailsWith(Reason::kNoPages));
  ASSERT_EQ(cache_->Close(other), absl::OkStatus());
  EXPECT_EQ(Append(id, 0, Tokens(32, 0)), absl::OkStatus());
}

TEST_F(AppendTest, WhatASequenceHoldsInOtherGroupsCountsAgainstWhatCanEverFit) {
  Start({.budget_bytes = 800});
  const ModelSlot model = AddModel(
      {.num_layers = 2,
       .page_size = 4,
       .groups = {{.layers = {0}, .page_bytes = 100}, {.layers = {1}, .page_bytes = 100}}});
  const SequenceId id = Open(model);
  ASSERT_EQ(Append(id, 0, Tokens(12, 0)), absl::OkStatus());
  EXPECT_THAT(Extend(id, 1, 21), FailsWith(Reason::kTooLarge));
  EXPECT_EQ(Append(id, 1, Tokens(20, 0)), absl::OkStatus());
}

// ---- replay

TEST_F(AppendTest, ARepeatedTokenIsAReplayOfTheWholeAppend) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  ExtendOptions options{.sequence = id, .count = 5, .append_token = 42};
  cache_->Extend(options).value().Commit();
  Reservation replay = cache_->Extend(options).value();
  EXPECT_TRUE(replay.replayed());
  EXPECT_THAT(std::pair(replay.begin(), replay.end()), Pair(0u, 5u));
  EXPECT_THAT(replay.moves(), IsEmpty());
  replay.Commit();
  EXPECT_EQ(cache_->LengthOf(id, 0), 5u);
  options.count = 4;
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kInvalid));
  options.append_token = 43;
  EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
}

TEST_F(AppendTest, ARolledBackAppendIsNotRemembered) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  const ExtendOptions options{.sequence = id, .count = 5, .append_token = 42};
  ASSERT_TRUE(cache_->Extend(options).ok());
  EXPECT_FALSE(cache_->Extend(options).value().replayed());
}

TEST_F(AppendTest, AReplayBeatsARewind) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  ExtendOptions options{.sequence = id, .count = 5, .append_token = 42, .rewind = true};
  cache_->Extend(options).value().Commit();
  ASSERT_EQ(Append(id, 0, Tokens(1, 0)), absl::OkStatus());
  EXPECT_TRUE(cache_->Extend(options).value().replayed());
  EXPECT_EQ(cache_->LengthOf(id, 0), 6u);
}

TEST_F(AppendTest, TheLastFewAppendsOfEachLayerAreRemembered) {
  Start({.budget_bytes = 800, .remembered_appends = 3});
  const ModelSlot model = AddModel(OneGroup(2, 4));
  const SequenceId id = Open(model);
  ExtendOptions options{.sequence = id, .count = 2};
  for (uint32_t i = 0; i < 4; ++i) {
    options.expected_len = 2 * i;
    options.append_token = 100 + i;
    for (options.layer = 0; options.layer < 2; ++options.layer) {
      cache_->Extend(options).value().Commit();
    }
  }
  for (options.layer = 0; options.layer < 2; ++options.layer) {
    options.expected_len = 0;
    options.append_token = 100;
    EXPECT_THAT(cache_->Extend(options), FailsWith(Reason::kLengthMismatch));
    for (uint32_t i = 1; i < 4; ++i) {
      options.expected_len = 2 * i;
      options.append_token = 100 + i;
      EXPECT_TRUE(cache_->Extend(options).value().replayed());
    }
  }
}

TEST_F(AppendTest, ACutForgetsEveryAppendThatEndsAboveIt) {
  const ModelSlot model = Start(OneGroup(1, 4), 8);
  const SequenceId id = Open(model);
  const ExtendOptions first{.sequence = id, .count = 4, .append_token = 1};
  const ExtendOptions second{.sequence = id, .expected_len = 4, .count = 4, .append_token = 2};
  cache_->Extend(first).value().Commit();
  cache_->Extend(second).value().Commit();
  EXPECT_EQ(cache_->Truncate(id, 7).value(), 7u);
  EXPECT_THAT(cache_->Extend(second), FailsWith(Reason::kLengthMismatch));
  EXPECT_TRUE(cache_->Extend(first).value().replayed());
  ASSERT_TRUE(Rewind(id, 0, 4, 1).ok());
  EXPECT_TRUE(cache_->Extend(first).value().replayed());
  ASSERT_TRUE(Rewind(id, 0, 3, 1).ok());
  EXPECT_THAT(cache_->Extend(first), FailsWith(Reason::kLengthMismatch));
}

}  // namespace
}  // namespace attn::kvcache::test
