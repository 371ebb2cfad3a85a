// Listing sequences for people who look on.
#include <algorithm>

#include "tests/kvcache/cache_fixture.h"

namespace attn::kvcache::test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<SequenceId> IdsOf(const std::vector<SequenceSummary>& list) {
  std::vector<SequenceId> ids;
  for (const SequenceSummary& summary : list) ids.push_back(summary.sequence);
  return ids;
}

class ListTest : public CacheFixture {
 protected:
  ListTest() {
    Start({.budget_bytes = 100'000});
    first_ = AddModel(OneGroup(2, 4));
    second_ = AddModel(OneGroup(1, 8));
  }
  std::vector<SequenceId> Ids(const ListOptions& options) {
    return IdsOf(cache_->List(options, now_));
  }
  ModelSlot first_, second_;
};

TEST_F(ListTest, PagesInTheOrderOfIdsHoldEverySequenceOnce) {
  std::vector<SequenceId> all;
  for (int i = 0; i < 57; ++i) all.push_back(Open(i % 3 == 0 ? second_ : first_));
  std::sort(all.begin(), all.end());
  std::vector<SequenceId> listed;
  SequenceId after{};
  for (size_t max : {10, 1, 20, 100, 100}) {
    const std::vector<SequenceId> page = Ids({.after = after, .max = max});
    EXPECT_LE(page.size(), max);
    listed.insert(listed.end(), page.begin(), page.end());
    if (!page.empty()) after = page.back();
  }
  EXPECT_THAT(listed, ElementsAreArray(all));
}

TEST_F(ListTest, OnlyThoseOfTheModelAndTheOwnerAskedFor) {
  const SequenceId a = Open(first_, "a");
  const SequenceId b = Open(first_, "b");
  const SequenceId other = Open(second_, "a");
  const SequenceId closed = Open(first_, "a");
  EXPECT_EQ(cache_->Close(closed), absl::OkStatus());
  EXPECT_THAT(Ids({}), ElementsAre(a, b, other));
  EXPECT_THAT(Ids({.model = first_}), ElementsAre(a, b));
  EXPECT_THAT(Ids({.owner = "a"}), ElementsAre(a, other));
  EXPECT_THAT(Ids({.model = second_, .owner = "b"}), IsEmpty());
  EXPECT_THAT(Ids({.max = 0}), IsEmpty());
}

TEST_F(ListTest, ASummaryTellsLengthsPagesAndLease) {
  const SequenceId id =
      cache_->Open({.model = first_, .owner = "me", .lease = 9 * kSecond}, now_).value();
  ASSERT_EQ(AppendToAll(id, 5, 100), absl::OkStatus());
  ASSERT_EQ(Append(id, 1, Tokens(4, 900)), absl::OkStatus());
  const auto list = cache_->List({}, now_ + 2 * kSecond);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].owner, "me");
  EXPECT_EQ(list[0].committed_len, 5u);
  EXPECT_EQ(list[0].longest_len, 9u);
  EXPECT_EQ(list[0].num_pages, 3u);
  EXPECT_EQ(list[0].lease_remaining, 7 * kSecond);
  EXPECT_EQ(cache_->List({}, now_ + 20 * kSecond)[0].lease_remaining, 0) << "looking is no life";
}

}  // namespace
}  // namespace attn::kvcache::test
