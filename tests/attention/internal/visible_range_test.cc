// The interval arithmetic of masks against the definition, key by key.
#include "attention/score/visible_range.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace attn::score {
namespace {

bool Sees(const VisibleRange& range, int64_t position, int64_t key) {
  return key >= 0 && key < range.kv_end && key >= position - range.left &&
         key <= position + range.right;
}

VisibleRange RandomRange(std::mt19937& random) {
  const auto upto = [&](uint32_t limit) { return static_cast<int64_t>(random() % (limit + 1)); };
  VisibleRange range;
  range.kv_end = upto(40);
  if (random() % 2 != 0) range.left = upto(20);
  if (random() % 2 != 0) range.right = random() % 2 != 0 ? 0 : upto(20);
  return range;
}

class VisibleRangeTest : public testing::TestWithParam<uint32_t> {
 protected:
  std::mt19937 random_{GetParam()};
};

TEST_P(VisibleRangeTest, KeysOfARowAreThoseItSees) {
  for (int i = 0; i < 3000; ++i) {
    const VisibleRange range = RandomRange(random_);
    const int64_t position = static_cast<int64_t>(random_() % 90) - 25;
    const Interval keys = range.KeysOf(position);
    for (int64_t key = -3; key < 45; ++key) {
      ASSERT_EQ(key >= keys.begin && key < keys.end, Sees(range, position, key))
          << "left " << range.left << " right " << range.right << " kv_end " << range.kv_end
          << " position " << position << " key " << key;
    }
  }
}

TEST_P(VisibleRangeTest, QueriesOfAKeyAreThoseThatSeeIt) {
  for (int i = 0; i < 3000; ++i) {
    const VisibleRange range = RandomRange(random_);
    const int64_t key = static_cast<int64_t>(random_() % 50) - 4;
    const Interval queries = range.QueriesOf(key);
    for (int64_t position = -30; position < 80; ++position) {
      ASSERT_EQ(position >= queries.begin && position < queries.end, Sees(range, position, key));
    }
  }
}

TEST_P(VisibleRangeTest, TilesHoldAllVisibleKeysAndFullOnesOnlySuch) {
  for (int i = 0; i < 3000; ++i) {
    const VisibleRange range = RandomRange(random_);
    const int64_t first = static_cast<int64_t>(random_() % 70) - 20;
    const int64_t last = first + static_cast<int64_t>(random_() % 12);
    const int64_t tile = 1 + static_cast<int64_t>(random_() % 9);
    const TileRange tiles = range.TilesOf(first, last, tile);
    ASSERT_LE(tiles.first, tiles.first_full);
    ASSERT_LE(tiles.first_full, tiles.last_full);
    ASSERT_LE(tiles.last_full, tiles.last);
    for (int64_t t = 0; t * tile < 60; ++t) {
      int64_t seen = 0;
      for (int64_t position = first; position <= last; ++position) {
        for (int64_t key = t * tile; key < (t + 1) * tile; ++key) {
          seen += Sees(range, position, key) ? 1 : 0;
        }
      }
      const bool is_inside = t >= tiles.first && t < tiles.last;
      const bool is_full = t >= tiles.first_full && t < tiles.last_full;
      ASSERT_TRUE(is_inside || seen == 0) << "tile " << t;
      ASSERT_EQ(is_full, seen == (last - first + 1) * tile) << "tile " << t;
    }
  }
}

TEST_P(VisibleRangeTest, PairsAreTheSumOverRows) {
  for (int i = 0; i < 3000; ++i) {
    const VisibleRange range = RandomRange(random_);
    const int64_t begin = static_cast<int64_t>(random_() % 90) - 40;
    const int64_t count = static_cast<int64_t>(random_() % 60);
    int64_t pairs = 0;
    for (int64_t position = begin; position < begin + count; ++position) {
      pairs += range.KeysOf(position).size();
    }
    ASSERT_EQ(range.PairsOf(begin, count), pairs);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, VisibleRangeTest, testing::Values(1u, 20u, 333u));

TEST(VisibleRangeTest, HugePositionsAndWindowsDoNotOverflow) {
  const VisibleRange range = {.left = UINT32_MAX, .right = UINT32_MAX, .kv_end = INT32_MAX};
  EXPECT_EQ(range.KeysOf(int64_t{1} << 40).size(), 0);
  EXPECT_EQ(range.KeysOf(-(int64_t{1} << 40)).size(), 0);
  EXPECT_EQ(range.KeysOf(5).size(), INT32_MAX);
  const VisibleRange unlimited = {.kv_end = INT32_MAX};
  EXPECT_EQ(unlimited.KeysOf(int64_t{1} << 40).size(), INT32_MAX);
}

}  // namespace
}  // namespace attn::score
