// Host proofs of the index maps that kernels are built on: every element has exactly one place, and
// the places that are touched together lie in different banks.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "attention/cuda/kv_pool.h"
#include "attention/cuda/tile/fragment.h"
#include "attention/cuda/tile/row_map.h"
#include "attention/cuda/tile/score_limit.h"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {
namespace {

using Place = std::pair<int, int>;

TEST(FragmentTest, WarpgroupAccumulatorCoversEveryElementOnce) {
  std::set<Place> seen;
  for (int thread = 0; thread < 128; ++thread) {
    for (int index = 0; index < 64; ++index) {
      const Element e = WarpgroupAccumulator(thread, index);
      EXPECT_TRUE(e.row >= 0 && e.row < 64 && e.column >= 0 && e.column < 128);
      EXPECT_TRUE(seen.insert({e.row, e.column}).second);
    }
  }
  EXPECT_EQ(seen.size(), 64u * 128u);
}

TEST(FragmentTest, ColumnBitsSayWhichColumnsLieWithin) {
  for (int begin = -9; begin <= 140; ++begin) {
    for (int end = -9; end <= 140; ++end) {
      const uint32_t bits = ColumnsWithin(begin, end);
      for (int index = 0; index < 64; ++index) {
        const int column = WarpgroupAccumulator(0, index).column;
        ASSERT_EQ(bits >> ColumnNumber(index) & 1, column >= begin && column < end)
            << begin << " " << end << " " << column;
      }
    }
  }
}

TEST(ScoreLimitTest, BitsReachTheLimitWhereTheScoreExceedsTheBound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, 8.0f, kInfinity, -kInfinity, -3.0f, 3e38f};
  for (int i = 0; i < 2000; ++i) {
    values.push_back(
        std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 90) - 60) *
        (i % 2 == 0 ? 1.0f : -1.0f));
  }
  for (const float bound : values) {
    for (const float score : values) {
      const bool is_reached = ScoreBits(score) >= FirstBitsAbove(bound);
      const bool is_expected = std::signbit(bound) || score > bound;
      ASSERT_EQ(is_reached, is_expected) << score << " against " << bound;
    }
  }
  EXPECT_EQ(FirstBitsAbove(std::nanf("")), kReachedByAll);
}

TEST(FragmentTest, AccumulatorPairsAreTheLeftOperandOfTheNextProduct) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int block = 0; block < 8; ++block) {
      for (int pair = 0; pair < 4; ++pair) {
        for (int half = 0; half < 2; ++half) {
          const Element from = WarpgroupAccumulator(lane, FirstOfOperandPair(block, pair) + half);
          const Element to = LeftOperand(lane, pair, half);
          EXPECT_EQ(from.row, to.row);
          EXPECT_EQ(from.column, 16 * block + to.column);
        }
      }
    }
  }
}

TEST(FragmentTest, WarpOperandsAndAccumulatorCoverEveryElementOnce) {
  std::set<Place> left, right, sums;
  for (int lane = 0; lane < 32; ++lane) {
    for (int index = 0; index < 4; ++index) {
      const Element sum = WarpAccumulator(lane, index);
      sums.insert({sum.row, sum.column});
      for (int half = 0; half < 2; ++half) {
        const Element l = LeftOperand(lane, index, half);
        left.insert({l.row, l.column});
        if (index < 2) {
          const Element r = RightOperand(lane, index, half);
          right.insert({r.row, r.column});
        }
      }
    }
  }
  EXPECT_EQ(left.size(), 16u * 16u);
  EXPECT_EQ(right.size(), 16u * 8u);
  EXPECT_EQ(sums.size(), 16u * 8u);
}

TEST(FragmentTest, TransposedScoresAreTheRightOperandOfValues) {
  // movmatrix hands element (r, c) of an 8 x 8 matrix to the lane that held (c, r).
  for (int lane = 0; lane < 32; ++lane) {
    for (int index = 0; index < 2; ++index) {
      for (int half = 0; half < 2; ++half) {
        const Element wanted = RightOperand(lane, index, half);  // row: key, column: query row
        const int holder = wanted.row % 8 * 4 + wanted.column / 2;
        const Element held = WarpAccumulator(holder, 2 * index + wanted.column % 2);
        EXPECT_EQ(held.row, wanted.row);
        EXPECT_EQ(held.column, wanted.column);
      }
    }
  }
}

TEST(SwizzleTest, EveryChunkOfATileHasItsOwnPlace) {
  std::set<int> grouped, halved, staged;
  for (int row = 0; row < 128; ++row) {
    for (int chunk = 0; chunk < kChunksPerRow; ++chunk) {
      grouped.insert(GroupedTileOffset(row, chunk));
      halved.insert(HalvedTileOffset(128, row, chunk));
      staged.insert(StagedRowOffset(row, chunk));
    }
  }
  for (const std::set<int>& places : {grouped, halved, staged}) {
    EXPECT_EQ(places.size(), 128u * kChunksPerRow);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), 128 * kTileColumns * 2 - kChunkBytes);
  }
}

TEST(SwizzleTest, BoxesOfEightRowsStackToATile) {
  for (int row = 0; row < 128; ++row) {
    for (int chunk = 0; chunk < kChunksPerRow; ++chunk) {
      EXPECT_EQ(GroupedTileOffset(row, chunk),
                row / 8 * kRowGroupBytes + GroupedTileOffset(row % 8, chunk));
    }
  }
}

TEST(SwizzleTest, PairsOfChunksAreReachedFromTheFirst) {
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < kChunksPerRow; ++chunk) {
      EXPECT_EQ(GroupedTileOffset(row, chunk),
                GroupedTileOffsetFrom(GroupedTileOffset(row, chunk % 2), chunk / 2));
    }
  }
}

// Eight rows of one chunk are what ldmatrix, stmatrix and the tensor cores touch at once.
TEST(SwizzleTest, EightRowsOfOneChunkLieInDifferentBanks) {
  for (int chunk = 0; chunk < kChunksPerRow; ++chunk) {
    std::set<int> grouped, halved, staged;
    for (int row = 0; row < 8; ++row) {
      grouped.insert(BankOf(GroupedTileOffset(row, chunk)));
      halved.insert(BankOf(HalvedTileOffset(128, row, chunk)));
      staged.insert(BankOf(StagedRowOffset(row, chunk)));
    }
    EXPECT_EQ(grouped.size(), 8u);
    EXPECT_EQ(halved.size(), 8u);
    EXPECT_EQ(staged.size(), 8u);
  }
}

TEST(RowMapTest, PackedRowsAreQueriesTimesHeads) {
  for (int group_size = 1; group_size <= kMaxGroupSize; ++group_size) {
    const RowMap map = MakeRowMap(group_size);
    EXPECT_EQ(map.QueriesIn(128), 128 / group_size);
    for (int row = 0; row <= kMaxPackedRows; ++row) {
      ASSERT_EQ(map.QueryOf(row), row / group_size) << "group size " << group_size;
      ASSERT_EQ(map.HeadOf(row), row % group_size);
      ASSERT_EQ(map.RowOf(map.QueryOf(row), map.HeadOf(row)), row);
    }
  }
}

TEST(KvPoolTest, EverySlotOfEveryHeadAndLayerHasItsOwnRow) {
  const KvPool pool{nullptr, 3, 2, 4, 5};
  std::set<int64_t> rows;
  for (int page = 0; page < 3; ++page) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 4; ++head) {
        for (int slot = 0; slot < 5; ++slot) {
          const int32_t keys = pool.KeyBlockInPage(layer, head);
          rows.insert(pool.OffsetOf(pool.BlockOf(page, keys), slot));
          rows.insert(pool.OffsetOf(pool.BlockOf(page, keys + pool.num_kv_heads), slot));
        }
      }
    }
  }
  EXPECT_EQ(rows.size(), 3u * 2u * 2u * 4u * 5u);
  EXPECT_EQ(*rows.rbegin() + kKvRowBytes, pool.num_pages * pool.page_bytes());
}

TEST(KvPoolTest, KeysLieInPagesOfAnySize) {
  for (const int page_size : {1, 3, 8, 24, 64, 1 << 20}) {
    const KvPool pool = WithLog2({nullptr, 1, 1, 1, page_size});
    EXPECT_EQ(pool.page_log2 >= 0, (page_size & (page_size - 1)) == 0);
    for (const int64_t key : {0, 1, 7, 23, 24, 1000, 1 << 20, (1 << 30) + 5}) {
      const KvSlot slot = pool.SlotOf(static_cast<int32_t>(key));
      EXPECT_EQ(slot.page_index, key / page_size);
      EXPECT_EQ(slot.slot, key % page_size);
    }
  }
}

TEST(KvPoolTest, EveryCtaHasItsItemAndHead) {
  for (const int heads : {1, 3, 8}) {
    const KvPool pool = WithLog2({nullptr, 1, 1, heads, 16});
    for (int cta = 0; cta < 100; ++cta) {
      EXPECT_EQ(pool.ItemOf(cta).item, cta / heads);
      EXPECT_EQ(pool.ItemOf(cta).kv_head, cta % heads);
    }
  }
}

TEST(KvPoolTest, OffsetsOfHugePoolsDoNotOverflow) {
  const KvPool pool{nullptr, 1 << 20, 32, 8, 16};
  EXPECT_EQ(pool.OffsetOf(pool.BlockOf((1 << 20) - 1, pool.blocks_per_page() - 1), 15),
            int64_t{1 << 20} * pool.page_bytes() - kKvRowBytes);
}

}  // namespace
}  // namespace attn::cuda
