// Memory of granules: there while somebody uses one, asked for once, given back in whole runs.
#include "attention/cuda/backend/granule_ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace attn::cuda {
namespace {

using Runs = std::vector<GranuleRun>;

TEST(GranuleLedgerTest, NeighboursShareAGranuleAndItStaysUntilBothAreGone) {
  GranuleLedger ledger(10);
  EXPECT_EQ(ledger.Use({0, 3}), (Runs{{0, 3}}));
  EXPECT_EQ(ledger.Use({2, 4}), (Runs{{3, 3}}));
  EXPECT_EQ(ledger.Drop({0, 3}), Runs());  // granule 2 belongs to that run and is in use
  EXPECT_EQ(ledger.Drop({2, 4}), (Runs{{0, 3}, {3, 3}}));
  EXPECT_EQ(ledger.BackedRuns(), Runs());
}

TEST(GranuleLedgerTest, MemoryThatIsStillThereIsNotAskedForAgain) {
  GranuleLedger ledger(10);
  ledger.Use({0, 4});
  ledger.Use({3, 2});
  EXPECT_EQ(ledger.Drop({0, 4}), Runs());
  EXPECT_EQ(ledger.Use({1, 1}), Runs());
  EXPECT_EQ(ledger.Use({0, 6}), (Runs{{5, 1}}));
}

TEST(GranuleLedgerTest, AWalkNeverLeavesAUserWithoutMemoryNorMemoryWithoutUsers) {
  constexpr int kGranules = 40;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  GranuleLedger ledger(kGranules);
  std::vector<GranuleRun> users;
  std::vector<int> has_memory(kGranules, 0);
  for (int i = 0; i < 3000; ++i) {
    if (users.size() < 8 || random() % 2 == 0) {
      const auto first = static_cast<int64_t>(random() % kGranules);
      users.push_back({first, 1 + static_cast<int64_t>(random() % (kGranules - first))});
      for (const GranuleRun& run : ledger.Use(users.back())) {
        for (int64_t g = run.first; g < run.first + run.count; ++g) ++has_memory[g];
      }
    } else {
      const size_t which = random() % users.size();
      for (const GranuleRun& run : ledger.Drop(users[which])) {
        for (int64_t g = run.first; g < run.first + run.count; ++g) --has_memory[g];
      }
      users.erase(users.begin() + static_cast<ptrdiff_t>(which));
    }
    std::vector<bool> used(kGranules, false);
    for (const GranuleRun& user : users) {
      for (int64_t g = user.first; g < user.first + user.count; ++g) used[g] = true;
    }
    for (int g = 0; g < kGranules; ++g) {
      ASSERT_TRUE(has_memory[g] == 0 || has_memory[g] == 1);
      ASSERT_TRUE(!used[g] || has_memory[g] == 1) << g;
    }
    for (const GranuleRun& run : ledger.BackedRuns()) {
      bool any = false;
      for (int64_t g = run.first; g < run.first + run.count; ++g) any |= used[g];
      ASSERT_TRUE(any) << "run at " << run.first;
    }
  }
}

}  // namespace
}  // namespace attn::cuda
