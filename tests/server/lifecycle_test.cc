// Open, Fork, Reorder, Truncate, Close, Describe, Renew, streams and aliases, request keys, leases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LifecycleTest : public ::testing::Test {
 protected:
  ~LifecycleTest() override { EXPECT_TRUE(f.engine->cache_for_test().CheckInvariants().ok()); }

  OpenCall OpenOf(std::vector<uint32_t> aliases, Nanos lease = 30 * kSecond) {
    OpenCall open;
    open.model = f.model;
    open.owner = "owner";
    open.lease = lease;
    for (const uint32_t alias : aliases) open.items.push_back({.alias = alias});
    return open;
  }
  static ForkCall ForkOf(uint64_t parent, uint32_t children, uint32_t first_alias = 0) {
    ForkCall fork;
    fork.items.push_back({.parent = {parent},
                          .at_len = std::nullopt,
                          .num_children = children,
                          .first_alias = first_alias,
                          .refused = absl::OkStatus()});
    return fork;
  }
  std::vector<uint64_t> Fork(uint64_t parent, uint32_t children) {
    const Call& call = f.Run(f.Make(ForkOf(parent, children)));
    std::vector<uint64_t> ids;
    for (const SequenceId id : std::get<ForkResult>(call.result).children) ids.push_back(id.value);
    return ids;
  }
  // What one more row sees in layer 0.
  float Read(uint64_t sequence) { return f.OutRow(f.Run(f.Attend({{.seq = sequence}})), 0); }
  int64_t num_sequences() { return f.engine->cache_for_test().Stats().num_sequences; }

  EngineFixture f;
};

TEST_F(LifecycleTest, ForkSharesUntilEitherSideWrites) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .layer = 0, .tokens = {1, 2, 3, 4, 5}, .q_len = 0},
               {.seq = s, .layer = 1, .tokens = {1, 2, 3, 4, 5}, .q_len = 0}});
  const std::vector<uint64_t> children = Fork(s, 2);
  ASSERT_EQ(children.size(), 2u);
  f.RunAttend({{.seq = children[0], .expected_len = 5, .tokens = {6}, .q_len = 0},
               {.seq = s, .expected_len = 5, .tokens = {7}, .q_len = 0}});
  EXPECT_GT(f.engine->stats().page_copies.value(), 0u);
  EXPECT_FLOAT_EQ(Read(children[0]), f.ExpectedOut({1, 2, 3, 4, 5, 6}));
  EXPECT_FLOAT_EQ(Read(children[1]), f.ExpectedOut({1, 2, 3, 4, 5}));
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({1, 2, 3, 4, 5, 7}));
}

TEST_F(LifecycleTest, AFailedForkItemLeavesTheOthers) {
  const uint64_t s = f.Open();
  ForkCall fork = ForkOf(s, 1);
  fork.items.push_back(fork.items[0]);
  fork.items[1].parent.value = 999999999999999999u;
  fork.items[1].num_children = 2;
  fork.items.push_back(fork.items[0]);
  fork.items[2].at_len = 8;
  fork.items.push_back(fork.items[0]);
  fork.items[3].refused = MakeError(Reason::kInvalid, "items[3]", "no");
  const Call& call = f.Run(f.Make(fork));
  ASSERT_TRUE(call.status.ok());
  const auto& result = std::get<ForkResult>(call.result);
  ASSERT_EQ(result.items.size(), 4u);
  EXPECT_TRUE(result.items[0].ok());
  EXPECT_EQ(ReasonOf(result.items[1]), Reason::kUnknownSequence);
  EXPECT_EQ(ReasonOf(result.items[2]), Reason::kInvalid);
  EXPECT_EQ(ReasonOf(result.items[3]), Reason::kInvalid);
  ASSERT_EQ(result.children.size(), 5u);
  EXPECT_NE(result.children[0], SequenceId(0));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(result.children[i], SequenceId(0));
}

TEST_F(LifecycleTest, AnAbsurdNumberOfChildrenIsRefusedBeforeAnythingIsAllocated) {
  ForkCall fork = ForkOf(f.Open(), UINT32_MAX, 1);
  for (int i = 0; i < 100; ++i) fork.items.push_back(fork.items[0]);
  const Call& call = f.Run(f.Make(fork, std::make_shared<StreamScope>()));
  EXPECT_EQ(ReasonOf(call.status), Reason::kTooLarge);
}

TEST_F(LifecycleTest, ReorderIsAllOrNothing) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  f.RunAttend({{.seq = s, .tokens = {1}, .q_len = 0}, {.seq = t, .tokens = {2, 3}, .q_len = 0}});
  ReorderCall reorder;
  reorder.targets = {{s}, {t}};
  reorder.sources = {{t}, {s}};
  EXPECT_TRUE(f.Run(f.Make(reorder)).status.ok());
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({2, 3}));
  EXPECT_FLOAT_EQ(Read(t), f.ExpectedOut({1}));
  reorder.sources[1].value = 77;
  EXPECT_EQ(ReasonOf(f.Run(f.Make(reorder)).status), Reason::kUnknownSequence);
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({2, 3}));
}

TEST_F(LifecycleTest, TruncateAnswersItemByItem) {
  const uint64_t s = f.Open();
  f.RunAttend({{.seq = s, .layer = 0, .tokens = {1, 2, 3}, .q_len = 0},
               {.seq = s, .layer = 1, .tokens = {1, 2}, .q_len = 0}});
  TruncateCall truncate;
  truncate.items = {{.sequence = {s}, .len = 9, .refused = {}},
                    {.sequence = {s}, .len = 2, .refused = {}}};
  const Call& call = f.Run(f.Make(truncate));
  const auto& result = std::get<TruncateResult>(call.result);
  EXPECT_EQ(ReasonOf(result.items[0].status()), Reason::kInvalid);
  EXPECT_EQ(FieldOf(result.items[0].status()), "items[0].len");
  EXPECT_EQ(result.items[1].value(), 2u);
  EXPECT_FLOAT_EQ(Read(s), f.ExpectedOut({1, 2}));
}

TEST_F(LifecycleTest, ClosingTwiceIsNoErrorAndFreesPagesAtOnceWhateverTheLease) {
  const uint64_t s = f.Open("owner", 3600 * kSecond);
  f.RunAttend({{.seq = s, .tokens = {1, 2, 3}, .q_len = 0}});
  EXPECT_GT(f.engine->cache_for_test().Stats().live_bytes, 0);
  const Call& call = f.Run(f.Make(CloseCall{.sequences = {{s}, {s}, {12345678901234567u}}}));
  const auto& result = std::get<CloseResult>(call.result);
  EXPECT_TRUE(result.items[0].ok());
  EXPECT_TRUE(result.items[1].ok());
  EXPECT_EQ(ReasonOf(result.items[2]), Reason::kUnknownSequence);
  EXPECT_EQ(f.engine->cache_for_test().Stats().live_bytes, 0);
  EXPECT_EQ(ReasonAt(f.RunAttend({{.seq = s}}), 0), Reason::kStaleSequence);
}

TEST_F(LifecycleTest, DescribeTellsLengths) {
  const uint64_t s = f.Open("me");
  f.RunAttend({{.seq = s, .layer = 1, .tokens = {1, 2, 3}, .q_len = 0}});
  const Call& call = f.Run(f.Make(DescribeCall{.sequences = {{s}, {77}}}));
  const auto& result = std::get<DescribeResult>(call.result);
  EXPECT_EQ(result.items[0]->owner, "me");
  EXPECT_THAT(result.items[0]->layer_lens, ElementsAre(0, 3));
  EXPECT_EQ(ReasonOf(result.items[1].status()), Reason::kUnknownSequence);
}

TEST_F(LifecycleTest, AliasesNameSequencesOfTheirStreamOnly) {
  auto stream = std::make_shared<StreamScope>();
  auto other = std::make_shared<StreamScope>();
  const uint64_t open = f.Push(f.Make(OpenOf({7}), stream));
  const uint64_t append = f.Push(f.Attend({{.seq = 7, .tokens = {1, 2}}}, stream));
  const uint64_t stranger = f.Push(f.Attend({{.seq = 7, .tokens = {1, 2}}}, other));
  const uint64_t unary = f.Push(f.Attend({{.seq = 7, .tokens = {1, 2}}}));
  f.Drain();
  EXPECT_TRUE(std::get<OpenResult>(f.Answer(open)->result).items[0].ok());
  EXPECT_EQ(ReasonAt(f.AttendAnswer(append), 0), Reason::kOk);
  EXPECT_EQ(f.AttendAnswer(append).items[0].new_len, 2u);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(stranger), 0), Reason::kUnknownSequence);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(unary), 0), Reason::kUnknownSequence);
}

TEST_F(LifecycleTest, ItemsOnTheAliasOfAWaitingForkRunBehindIt) {
  auto stream = std::make_shared<StreamScope>();
  f.Push(f.Make(OpenOf({1}), stream));
  f.Push(f.Attend({{.seq = 1, .layer = 0, .tokens = {1, 2, 3}, .q_len = 0},
                   {.seq = 1, .layer = 1, .tokens = {1, 2, 3}, .q_len = 0}},
                  stream));
  f.Push(f.Make(ForkOf(1, 2, 10), stream));
  f.Push(f.Make(ForkOf(11, 1, 20), stream));
  const uint64_t child = f.Push(f.Attend({{.seq = 20, .expected_len = 3, .tokens = {9}}}, stream));
  f.Drain();
  ASSERT_EQ(ReasonAt(f.AttendAnswer(child), 0), Reason::kOk)
      << f.AttendAnswer(child).items[0].status;
  EXPECT_FLOAT_EQ(f.OutRow(*f.Answer(child), 0), f.ExpectedOut({1, 2, 3, 9}));
}

TEST_F(LifecycleTest, ItemsOnTheAliasOfAFailedOpenOrForkAreSkipped) {
  auto stream = std::make_shared<StreamScope>();
  auto late = f.Make(OpenOf({1}), stream);
  late->cancelled->store(true);
  const uint64_t open = f.Push(std::move(late));
  const uint64_t first = f.Push(f.Attend({{.seq = 1, .tokens = {1}}}, stream));
  f.Push(f.Make(OpenOf({2}), stream));
  f.Push(f.Attend({{.seq = 2, .tokens = {1}, .q_len = 0}}, stream));
  ForkCall fork = ForkOf(2, 1, 3);
  fork.items[0].at_len = 100;
  f.Push(f.Make(fork, stream));
  const uint64_t nested = f.Push(f.Make(ForkOf(3, 1, 4), stream));
  const uint64_t second = f.Push(f.Attend({{.seq = 3}, {.seq = 4}}, stream));
  f.Drain();
  const uint64_t third = f.Push(f.Attend({{.seq = 3}, {.seq = 4}}, stream));
  f.Drain();
  EXPECT_EQ(ReasonOf(f.Answer(open)->status), Reason::kCancelled);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(first), 0), Reason::kSkipped);
  EXPECT_EQ(ReasonOf(std::get<ForkResult>(f.Answer(nested)->result).items[0]), Reason::kSkipped);
  for (const uint64_t call : {second, third}) {
    EXPECT_EQ(ReasonAt(f.AttendAnswer(call), 0), Reason::kSkipped);
    EXPECT_EQ(ReasonAt(f.AttendAnswer(call), 1), Reason::kSkipped);
  }
}

TEST_F(LifecycleTest, AForkThatIsCancelledInLineFailsItsAliases) {
  auto stream = std::make_shared<StreamScope>();
  f.Push(f.Make(OpenOf({1}), stream));
  f.Drain();
  uint64_t item = 0;
  auto fork = f.Make(ForkOf(1, 1, 5), stream);
  const auto flag = fork->cancelled;
  const uint64_t fork_id = f.Push(f.Attend({{.seq = 1, .tokens = {1}, .q_len = 0}}, stream)) + 0;
  const uint64_t forked = f.Push(std::move(fork));
  item = f.Push(f.Attend({{.seq = 5}}, stream));
  f.device->on_launch = [&](const Batch&) { flag->store(true); };
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(fork_id), 0), Reason::kOk);
  EXPECT_EQ(ReasonOf(f.Answer(forked)->status), Reason::kCancelled);
  EXPECT_EQ(ReasonAt(f.AttendAnswer(item), 0), Reason::kSkipped);
  EXPECT_EQ(num_sequences(), 1);
}

TEST_F(LifecycleTest, TheEndOfAStreamClosesWhatWasOpenedForItForksIncluded) {
  auto stream = std::make_shared<StreamScope>();
  OpenCall closing = OpenOf({1});
  closing.close_with_stream = true;
  f.Push(f.Make(closing, stream));
  f.Push(f.Make(OpenOf({2}), stream));
  f.Push(f.Make(ForkOf(1, 3, 10), stream));
  const uint64_t item = f.Push(f.Attend({{.seq = 11, .tokens = {4}}}, stream));
  f.Push(f.Make(StreamEndedCall{}, stream));
  f.Drain();
  EXPECT_EQ(ReasonAt(f.AttendAnswer(item), 0), Reason::kOk) << "earlier items run first";
  EXPECT_EQ(num_sequences(), 1) << "the one of alias 2 stays";
  EXPECT_TRUE(stream->aliases.empty());
}

TEST_F(LifecycleTest, ARepeatedRequestKeyReturnsTheFirstResult) {
  OpenCall open = OpenOf({0, 0});
  open.request_key = 5;
  const uint64_t first = f.Push(f.Make(open));
  const uint64_t second = f.Push(f.Make(open));
  f.Drain();
  const auto id = [&](uint64_t call) {
    return std::get<OpenResult>(f.Answer(call)->result).items[1].value();
  };
  EXPECT_EQ(id(first), id(second));
  EXPECT_EQ(num_sequences(), 2);
  f.clock.Advance(29 * kSecond);
  EXPECT_EQ(std::get<OpenResult>(f.Run(f.Make(open)).result).items[1].value(), id(first));
}

TEST_F(LifecycleTest, ARequestKeyWithOtherContentIsInvalidAndChangesNothing) {
  auto stream = std::make_shared<StreamScope>();
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  stream->aliases[7] = {SequenceId(s)};
  f.RunAttend({{.seq = s, .layer = 0, .tokens = {1, 2, 3, 4}, .q_len = 0},
               {.seq = s, .layer = 1, .tokens = {1, 2, 3, 4}, .q_len = 0}});
  constexpr uint64_t kKey = 0x1234;
  const auto keyed = [&](auto request) {
    request.request_key = kKey;
    return ReasonOf(f.Run(f.Make(std::move(request), stream)).status);
  };
  // Each kind: the first, its repeats, and what differs from it in one place.
  OpenCall open = OpenOf({0, 0});
  EXPECT_EQ(keyed(open), Reason::kOk);
  const int64_t opened = num_sequences();
  open.items[1].alias = 3;
  EXPECT_EQ(keyed(open), Reason::kOk) << "aliases are of the stream";
  std::vector<OpenCall> others(5, open);
  others[0].owner = "another";
  others[1].lease += 1;
  others[2].close_with_stream = true;
  others[3].items[0].priority = Priority::kBatch;
  others[4].items.pop_back();
  for (const OpenCall& other : others) EXPECT_EQ(keyed(other), Reason::kInvalid);
  EXPECT_EQ(num_sequences(), opened);

  EXPECT_EQ(keyed(ForkOf(s, 1)), Reason::kOk);
  EXPECT_EQ(keyed(ForkOf(7, 1)), Reason::kOk) << "an alias of the parent";
  ForkCall shorter = ForkOf(s, 1);
  shorter.items[0].at_len = 2;
  for (const ForkCall& other : {ForkOf(s, 2), ForkOf(t, 1), shorter}) {
    EXPECT_EQ(keyed(other), Reason::kInvalid);
  }
  EXPECT_EQ(num_sequences(), opened + 1);

  const TruncateCall::Item cut{.sequence = {s}, .len = 3, .refused = absl::OkStatus()};
  TruncateCall truncate{.request_key = 0, .items = {cut}};
  EXPECT_EQ(keyed(truncate), Reason::kOk);
  EXPECT_EQ(keyed(truncate), Reason::kOk);
  truncate.items[0].len = 1;
  EXPECT_EQ(keyed(truncate), Reason::kInvalid);
  EXPECT_EQ(f.LengthOf(s, 0), 3u);

  EXPECT_EQ(keyed(ReorderCall{.request_key = 0, .targets = {{t}}, .sources = {{s}}}), Reason::kOk);
  EXPECT_EQ(keyed(ReorderCall{.request_key = 0, .targets = {{s}}, .sources = {{t}}}),
            Reason::kInvalid);
  EXPECT_EQ(f.LengthOf(s, 0), 3u);
}

TEST_F(LifecycleTest, ARequestKeyOfAWaitingForkWithOtherContentIsInvalid) {
  auto stream = std::make_shared<StreamScope>();
  const uint64_t s = f.Open();
  f.Push(f.Attend({{.seq = s, .tokens = {1}, .q_len = 0}}));
  ForkCall fork = ForkOf(s, 1);
  fork.request_key = 9;
  const uint64_t first = f.Push(f.Make(fork));
  fork.items[0].num_children = 2;
  fork.items[0].first_alias = 4;
  const uint64_t second = f.Push(f.Make(fork, stream));
  const uint64_t item = f.Push(f.Attend({{.seq = 5}}, stream));
  f.Drain();
  EXPECT_TRUE(f.Answer(first)->status.ok());
  const absl::Status refused = f.Answer(second)->status;
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalid);
  EXPECT_EQ(FieldOf(refused), "request_key");
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("got 9"), HasSubstr("other content"), HasSubstr("want a new")));
  EXPECT_EQ(ReasonAt(f.AttendAnswer(item), 0), Reason::kSkipped);
  EXPECT_EQ(num_sequences(), 2);
}

TEST_F(LifecycleTest, ARepeatOfAWaitingForkWaitsWithItAndOutlivesTheFirstCaller) {
  auto stream = std::make_shared<StreamScope>();
  const uint64_t s = f.Open();
  f.Push(f.Attend({{.seq = s, .tokens = {1}, .q_len = 0}}));
  ForkCall fork = ForkOf(s, 1);
  fork.request_key = 9;
  auto leader = f.Make(fork);
  const auto flag = leader->cancelled;
  const uint64_t first = f.Push(std::move(leader));
  fork.items[0].first_alias = 4;
  const uint64_t second = f.Push(f.Make(fork, stream));
  const uint64_t item = f.Push(f.Attend({{.seq = 4}}, stream));
  f.device->on_launch = [&](const Batch&) { flag->store(true); };
  f.Drain();
  EXPECT_EQ(ReasonOf(f.Answer(first)->status), Reason::kCancelled);
  EXPECT_TRUE(f.Answer(second)->status.ok());
  EXPECT_EQ(ReasonAt(f.AttendAnswer(item), 0), Reason::kOk);
  EXPECT_EQ(num_sequences(), 2) << "forked once";
}

TEST_F(LifecycleTest, LeasesEndUnlessACallOfTheOwnerRenewsThem) {
  const uint64_t a = f.Open("a", 2 * kSecond);
  f.Open("b", 2 * kSecond);
  f.Open("c", 2 * kSecond);
  f.clock.Advance(kSecond);
  f.RunAttend({{.seq = a, .tokens = {1}}});
  const Call& renewed = f.Run(f.Make(RenewCall{.owner = "b", .lease = 10 * kSecond}));
  EXPECT_EQ(std::get<RenewResult>(renewed.result).renewal.num_sequences, 1u);
  f.clock.Advance(kSecond + kMillisecond);
  f.engine->StepByHand();
  EXPECT_EQ(num_sequences(), 2) << "c is gone";
  f.clock.Advance(kSecond);
  f.engine->StepByHand();
  EXPECT_EQ(num_sequences(), 1) << "a is gone";
  f.clock.Advance(10 * kSecond);
  f.engine->StepByHand();
  EXPECT_EQ(num_sequences(), 0);
  EXPECT_EQ(f.engine->stats().expired_sequences.value(), 3u);
  EXPECT_EQ(ReasonAt(f.RunAttend({{.seq = a}}), 0), Reason::kStaleSequence);
}

TEST_F(LifecycleTest, LookingOnDoesNotRenewALease) {
  const uint64_t s = f.Open("a", 2 * kSecond);
  f.clock.Advance(kSecond);
  f.Run(f.Make(DescribeCall{.sequences = {{s}}}));
  f.clock.Advance(kSecond + kMillisecond);
  f.engine->StepByHand();
  EXPECT_EQ(num_sequences(), 0);
}

TEST_F(LifecycleTest, NothingExpiresWhileAnItemOfItsOwnerIsRunning) {
  const uint64_t s = f.Open("owner", kSecond);
  f.device->on_launch = [&](const Batch&) { f.clock.Advance(5 * kSecond); };
  const Call& call = f.Run(f.Attend({{.seq = s, .tokens = {1}}, {.seq = s, .layer = 1}}));
  EXPECT_EQ(ReasonAt(std::get<AttendResult>(call.result), 0), Reason::kOk);
  f.engine->StepByHand();
  EXPECT_EQ(num_sequences(), 1) << "its lease starts again when the item ends";
}

TEST_F(LifecycleTest, ManySequencesLeaveNothingBehind) {
  auto stream = std::make_shared<StreamScope>();
  for (int i = 0; i < 20000; ++i) {
    OpenCall open = OpenOf({static_cast<uint32_t>(i + 1)});
    open.close_with_stream = true;
    f.Push(f.Make(std::move(open), stream));
    f.Push(f.Make(CloseCall{.sequences = {{static_cast<uint64_t>(i + 1)}}}, stream));
    f.engine->StepByHand();
  }
  EXPECT_EQ(num_sequences(), 0);
  EXPECT_LE(stream->aliases.size(), 2048u);
  EXPECT_LE(stream->close_with_stream.size(), 128u);
}

}  // namespace
}  // namespace attn::server
