// PagePool alone: states, reference counts, slabs.
#include "kvcache/src/page_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/support/random.h"

namespace attn::kvcache::test {
namespace {

class PagePoolTest : public ::testing::Test {
 protected:
  ~PagePoolTest() override { EXPECT_EQ(pool_.CheckFreeLists(), absl::OkStatus()); }
  PagePool pool_{{.model = ModelSlot(1), .group = 0, .page_bytes = 100},
                 {.num_pages = 64, .pages_per_slab = 8}};
};

TEST_F(PagePoolTest, EveryPageIsHandedOutOnce) {
  while (pool_.num_unbacked_slabs() > 0) pool_.BackSlab();
  std::set<PageId> pages;
  while (pool_.num_free() > 0) pages.insert(pool_.Acquire());
  EXPECT_EQ(pages.size(), 64u);
  EXPECT_EQ(*pages.begin(), 0);
  EXPECT_EQ(*pages.rbegin(), 63);
  EXPECT_EQ(pool_.num_in(PageState::kReserved), 64);
}

TEST_F(PagePoolTest, APageIsFreeWhenItsLastReferenceGoes) {
  pool_.BackSlab();
  const PageId page = pool_.Acquire();
  pool_.SetState(page, PageState::kLive);
  pool_.AddReference(page);
  pool_.AddReference(page);
  EXPECT_EQ(pool_.NumReferences(page), 3u);
  pool_.Release(page);
  pool_.Release(page);
  EXPECT_EQ(pool_.StateOf(page), PageState::kLive);
  pool_.Release(page);
  EXPECT_EQ(pool_.StateOf(page), PageState::kFree);
  EXPECT_EQ(pool_.Acquire(), page);
}

TEST_F(PagePoolTest, PartlyUsedSlabsAreUsedUpBeforeFreeOnesAreTouched) {
  for (int i = 0; i < 3; ++i) pool_.BackSlab();
  const PageId page = pool_.Acquire();
  for (int i = 1; i < 8; ++i) EXPECT_EQ(pool_.Acquire() / 8, page / 8);
  EXPECT_EQ(pool_.num_free_slabs(), 2);
}

TEST_F(PagePoolTest, OnlyWhollyFreeSlabsLoseTheirMemory) {
  for (int i = 0; i < 2; ++i) pool_.BackSlab();
  const PageId page = pool_.Acquire();
  EXPECT_NE(pool_.UnbackFreeSlab(), page / 8);
  EXPECT_EQ(pool_.num_free_slabs(), 0);
  EXPECT_EQ(pool_.num_in(PageState::kUnbacked), 56);
  pool_.Release(page);
  EXPECT_EQ(pool_.UnbackFreeSlab(), page / 8);
  EXPECT_EQ(pool_.num_backed_slabs(), 0);
}

TEST_F(PagePoolTest, RandomOperationsKeepListsAndCountersTrue) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  attn::test::Random random(seed);
  std::vector<PageId> used;
  for (int step = 0; step < 20000 && !HasFailure(); ++step) {
    const int64_t die = random.Integer(0, 9);
    if (die == 0 && pool_.num_unbacked_slabs() > 0) {
      pool_.BackSlab();
    } else if (die == 1 && pool_.num_free_slabs() > 0) {
      pool_.UnbackFreeSlab();
    } else if (die < 6 && pool_.num_free() > 0) {
      used.push_back(pool_.Acquire());
      if (random.Chance(0.5)) pool_.SetState(used.back(), PageState::kLive);
    } else if (!used.empty()) {
      const int64_t index = random.Integer(0, static_cast<int64_t>(used.size()) - 1);
      pool_.Release(used[index]);
      used.erase(used.begin() + index);
    }
    ASSERT_EQ(pool_.CheckFreeLists(), absl::OkStatus()) << "step " << step;
    ASSERT_EQ(pool_.num_in(PageState::kReserved) + pool_.num_in(PageState::kLive),
              static_cast<int64_t>(used.size()));
  }
}

}  // namespace
}  // namespace attn::kvcache::test
