// Leases: who keeps sequences alive, and what goes when nobody does.
#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class LeaseTest : public CacheFixture {
 protected:
  LeaseTest() { model_ = Start(OneGroup(1, 4), 64); }
  SequenceId OpenFor(const std::string& owner, Nanos lease) {
    return cache_->Open({.model = model_, .owner = owner, .lease = lease}, now_).value();
  }
  ModelSlot model_;
};

TEST_F(LeaseTest, ExactlyTheRunOutLeasesExpireWhateverTheirOrder) {
  const SequenceId long_one = OpenFor("a", 60 * kSecond);
  const SequenceId short_one = OpenFor("b", kSecond);
  const SequenceId long_two = OpenFor("c", 60 * kSecond);
  const SequenceId short_two = OpenFor("d", kSecond);
  EXPECT_THAT(cache_->Expire(now_ + 2 * kSecond), ElementsAre(short_one, short_two));
  EXPECT_TRUE(cache_->CheckOpen(long_one).ok());
  EXPECT_TRUE(cache_->CheckOpen(long_two).ok());
  EXPECT_THAT(cache_->CheckOpen(short_one), FailsWith(Reason::kStaleSequence));
}

TEST_F(LeaseTest, OwnersWhoExpireAreNamedOnceWithAllTheirSequences) {
  OpenFor("one", kSecond);
  OpenFor("two", kSecond);
  OpenFor("stays", 60 * kSecond);
  OpenFor("one", kSecond);
  std::vector<ExpiredOwner> owners;
  EXPECT_EQ(cache_->Expire(now_, &owners).size(), 0u);
  EXPECT_THAT(owners, IsEmpty());
  EXPECT_EQ(cache_->Expire(now_ + 2 * kSecond, &owners).size(), 3u);
  ASSERT_EQ(owners.size(), 2u);
  EXPECT_EQ(owners[0].name, "one");
  EXPECT_EQ(owners[0].num_sequences, 2u);
  EXPECT_EQ(owners[1].name, "two");
  EXPECT_EQ(owners[1].num_sequences, 1u);
}

TEST_F(LeaseTest, ALeaseCoversAllSequencesOfItsOwner) {
  const SequenceId first = OpenFor("me", 10 * kSecond);
  ASSERT_EQ(Append(first, 0, Tokens(5, 0)), absl::OkStatus());
  now_ += 8 * kSecond;
  const SequenceId second = OpenFor("me", 10 * kSecond);
  const SequenceId child = Fork(first, 5)[0];
  EXPECT_THAT(cache_->Expire(now_ + 9 * kSecond), IsEmpty());
  EXPECT_THAT(cache_->Expire(now_ + 10 * kSecond), ElementsAre(first, second, child));
  EXPECT_EQ(NumUsed(model_), 0);
  EXPECT_EQ(cache_->NextExpiry(), kNever);
}

TEST_F(LeaseTest, AnExplicitCloseBeatsTheLease) {
  const SequenceId id = OpenFor("me", 300 * kSecond);
  ASSERT_EQ(Append(id, 0, Tokens(20, 0)), absl::OkStatus());
  ASSERT_EQ(cache_->Close(id), absl::OkStatus());
  EXPECT_EQ(NumUsed(model_), 0);
  EXPECT_EQ(cache_->Stats().num_sequences, 0);
  EXPECT_EQ(cache_->Renew("me", kSecond, now_).num_sequences, 0u);
}

TEST_F(LeaseTest, NothingOfAnOwnerExpiresWhileOneOfItsSequencesIsInUse) {
  const SequenceId used = OpenFor("me", kSecond), other = OpenFor("me", kSecond);
  cache_->AddUse(used);
  cache_->AddUse(used);
  EXPECT_EQ(cache_->NextExpiry(), kNever);
  EXPECT_THAT(cache_->Expire(now_ + 100 * kSecond), IsEmpty());
  cache_->DropUse(used);
  EXPECT_THAT(cache_->Expire(now_ + 100 * kSecond), IsEmpty());
  cache_->DropUse(used);
  EXPECT_EQ(cache_->NextExpiry(), now_ + kSecond);
  EXPECT_THAT(cache_->Expire(now_ + 100 * kSecond), UnorderedElementsAre(used, other));
}

TEST_F(LeaseTest, ClosingASequenceEndsItsUses) {
  const SequenceId used = OpenFor("me", kSecond), other = OpenFor("me", kSecond);
  cache_->AddUse(used);
  ASSERT_EQ(cache_->Close(used), absl::OkStatus());
  cache_->DropUse(used);
  EXPECT_THAT(cache_->Expire(now_ + kSecond), ElementsAre(other));
}

TEST_F(LeaseTest, ARenewalNeverShortensARunningLease) {
  const SequenceId id = OpenFor("me", 60 * kSecond);
  EXPECT_EQ(cache_->Renew("me", kSecond, now_).num_sequences, 1u);
  EXPECT_EQ(cache_->NextExpiry(), now_ + 60 * kSecond);
  now_ += 60 * kSecond - 1;
  cache_->Touch(id, now_);
  EXPECT_EQ(cache_->NextExpiry(), now_ + kSecond);
  EXPECT_EQ(cache_->Describe(id, now_).value().lease_remaining, kSecond);
}

TEST_F(LeaseTest, TheNextExpiryIsTheEarliestAfterAnyTouches) {
  const SequenceId a = OpenFor("a", 10 * kSecond);
  OpenFor("b", 12 * kSecond);
  now_ += 5 * kSecond;
  cache_->Touch(a, now_);
  EXPECT_EQ(cache_->NextExpiry(), now_ + 7 * kSecond);
  EXPECT_EQ(cache_->Expire(now_ + 7 * kSecond).size(), 1u);
  EXPECT_EQ(cache_->NextExpiry(), now_ + 10 * kSecond);
}

TEST_F(LeaseTest, TheLongestPossibleLeaseNeverEnds) {
  const SequenceId id = OpenFor("me", kNever);
  EXPECT_EQ(cache_->NextExpiry(), kNever);
  EXPECT_THAT(cache_->Expire(kNever - 1), IsEmpty());
  EXPECT_TRUE(cache_->CheckOpen(id).ok());
  EXPECT_THAT(cache_->Open({.model = model_, .owner = "x", .lease = 0}, now_),
              FailsWith(Reason::kInvalid));
}

// A sequence is closed, then its lease would have run out: nothing is given back twice, and two new
// sequences have pages of their own.
TEST_F(LeaseTest, ASequenceClosedBeforeItsLeaseEndsIsNotReleasedAgain) {
  const SequenceId gone = OpenFor("me", kSecond);
  ASSERT_EQ(Append(gone, 0, Tokens(8, 0)), absl::OkStatus());
  ASSERT_EQ(cache_->Close(gone), absl::OkStatus());
  EXPECT_THAT(cache_->Expire(now_ + 2 * kSecond), IsEmpty());
  now_ += 2 * kSecond;
  const SequenceId t = OpenFor("t", kSecond), u = OpenFor("u", kSecond);
  ASSERT_EQ(Append(t, 0, Tokens(8, 100)), absl::OkStatus());
  ASSERT_EQ(Append(u, 0, Tokens(8, 200)), absl::OkStatus());
  ASSERT_EQ(cache_->Close(gone), absl::OkStatus());
  EXPECT_EQ(Contents(t), Tokens(8, 100));
  EXPECT_EQ(Contents(u), Tokens(8, 200));
}

}  // namespace
}  // namespace attn::kvcache::test
