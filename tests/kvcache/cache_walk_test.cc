// Random walks over every call of the cache, against plain vectors. A failure names the seed.
#include <gtest/gtest.h>

#include <random>

#include "tests/kvcache/cache_fixture.h"
#include "tests/kvcache/random_walk.h"

namespace attn::kvcache::test {
namespace {

std::vector<uint64_t> Seeds() { return {1, 2, 3, 4, std::random_device()()}; }

// Walks with each seed and returns how often each outcome came up.
std::map<std::string, int64_t> WalkAll(WalkOptions options) {
  std::map<std::string, int64_t> counts;
  for (const uint64_t seed : Seeds()) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    options.seed = seed;
    RandomWalk walk(options);
    walk.Run();
    for (const auto& [what, count] : walk.counts()) counts[what] += count;
    if (::testing::Test::HasFailure()) break;
  }
  return counts;
}

CacheModel TwoGroups(uint32_t page_size) {
  return {
      .num_layers = 5,
      .page_size = page_size,
      .groups = {{.layers = {0, 2, 4}, .page_bytes = 300}, {.layers = {3, 1}, .page_bytes = 200}}};
}

TEST(CacheWalkTest, OneLayerWithOneTokenPerPage) {
  const auto counts = WalkAll({.num_steps = 4000,
                               .models = {OneGroup(1, 1)},
                               .cache = {.budget_bytes = 31 * 100, .max_sequence_len = 40}});
  for (const char* what : {"extend OK", "extend NO_PAGES", "extend TOO_LARGE", "replayed",
                           "rewound", "fork ok", "reorder ok", "truncate ok", "expired"}) {
    EXPECT_GT(counts.count(what), 0u) << what;
  }
}

TEST(CacheWalkTest, SeveralGroupsOfSeveralLayers) {
  const auto counts = WalkAll({.num_steps = 4000,
                               .models = {TwoGroups(4)},
                               .cache = {.budget_bytes = 6000, .remembered_appends = 3}});
  for (const char* what : {"extend NO_PAGES", "extend TOO_LARGE", "replayed", "rewound", "moves",
                           "rolled back", "settled after close"}) {
    EXPECT_GT(counts.count(what), 0u) << what;
  }
}

TEST(CacheWalkTest, LargePagesAndRoomForAll) {
  WalkAll({.num_steps = 3000,
           .models = {TwoGroups(16)},
           .cache = {.budget_bytes = 200000},
           .max_append = 40});
}

TEST(CacheWalkTest, SlabsOfSeveralPagesUnderPressure) {
  const CacheModel model = OneGroup(2, 4);
  const KvCacheOptions options{.budget_bytes = 128 * 100};
  ASSERT_GT(KvCache(options).GeometryOf(model, 0).pages_per_slab, 1);
  const auto counts =
      WalkAll({.num_steps = 3000, .models = {model}, .cache = options, .max_append = 100});
  EXPECT_GT(counts.count("extend NO_PAGES"), 0u);
}

TEST(CacheWalkTest, TwoModelsOverOneBudget) {
  const auto counts =
      WalkAll({.num_steps = 4000,
               .models = {TwoGroups(4), OneGroup(2, 3, 170)},
               .cache = {.budget_bytes = 8000, .max_sequences = 7, .remembered_appends = 2}});
  for (const char* what : {"extend NO_PAGES", "open QUOTA", "reorder INVALID"}) {
    EXPECT_GT(counts.count(what), 0u) << what;
  }
}

TEST(CacheWalkTest, ListsOfSeveralChunks) {
  WalkAll({.num_steps = 400,
           .models = {OneGroup(1, 1)},
           .cache = {.budget_bytes = 6000 * 100, .max_sequence_len = 3000},
           .max_append = 700,
           .max_sequences = 5});
}

TEST(CacheWalkTest, ABackingThatRefusesSlabs) {
  const auto counts = WalkAll({.num_steps = 3000,
                               .models = {TwoGroups(4), OneGroup(1, 2)},
                               .cache = {.budget_bytes = 8000},
                               .backing_refuses = 0.3});
  EXPECT_GT(counts.count("extend NO_PAGES"), 0u);
}

TEST(CacheWalkTest, NothingRemembered) {
  const auto counts = WalkAll({.num_steps = 1500,
                               .models = {OneGroup(2, 4)},
                               .cache = {.budget_bytes = 3000, .remembered_appends = 0}});
  EXPECT_EQ(counts.count("replayed"), 0u);
}

}  // namespace
}  // namespace attn::kvcache::test
