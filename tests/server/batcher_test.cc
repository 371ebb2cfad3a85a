// The policy alone: what is due in a step, where prefill is cut, who comes first.
#include "server/core/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "server/core/prefill_cut.h"
#include "tests/support/fake_backend.h"
#include "tests/support/random.h"

namespace attn::server {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kHeads = 2;

class BatcherTest : public ::testing::Test {
 protected:
  BatcherTest() {
    store.spec.num_q_heads = kHeads;
    store.spec.num_kv_heads = kHeads;
    store.spec.head_dim_qk = 8;
    store.spec.head_dim_v = 8;
  }

  AttendWork& Add(uint32_t q_len, uint32_t keys, Priority priority = Priority::kNormal,
                  uint32_t appended = 1) {
    AttendItem& item = items.emplace_back();
    item.q_len = q_len;
    item.kv_new_len = appended;
    AttendWork& work = works.emplace_back();
    work.item = &item;
    work.index = static_cast<uint32_t>(works.size() - 1);
    work.priority = priority;
    work.store = &store;
    work.kv_end = keys;
    work.q_start = int64_t{keys} - q_len;
    batcher.Add(work, now);
    return work;
  }

  // Items that are due, in order, an item once.
  std::vector<uint32_t> Due() {
    std::vector<uint32_t> due;
    for (const DueChunk& chunk : batcher.TakeDue(now)) {
      if (due.empty() || due.back() != chunk.work->index) due.push_back(chunk.work->index);
    }
    return due;
  }

  // So that one row of one head over `keys` keys takes this.
  void Calibrate(Nanos row_time, uint32_t keys) {
    AttendEntry entry;
    entry.q_len = 1;
    entry.q_start = keys;
    entry.kv_end = static_cast<int32_t>(keys);
    entry.kv_head_end = 1;
    const double units = costs.UnitsOf(store.spec, entry);
    costs.Observe({units * 1e6, 0}, row_time * 1000000);
    costs.Observe({0, units * 1e6}, row_time * 1000000);
  }

  std::shared_ptr<test::FakeDevice> device = std::make_shared<test::FakeDevice>();
  std::unique_ptr<Backend> backend = test::CreateFakeBackend(device);
  GroupStore store;
  CostModel costs{backend.get()};
  Batcher batcher{{.chunk_time = 5 * kMillisecond, .max_launch_items = 100}, &costs};
  Nanos now = kSecond;
  std::deque<AttendItem> items;
  std::deque<AttendWork> works;
};

TEST_F(BatcherTest, AllDecodeIsDueAtOnce) {
  for (int i = 0; i < 64; ++i) Add(1, 100);
  EXPECT_EQ(batcher.TakeDue(now).size(), 64u);
  EXPECT_TRUE(batcher.empty());
  EXPECT_TRUE(batcher.TakeDue(now).empty());
}

TEST_F(BatcherTest, ALaunchHoldsAtMostSoManyItems) {
  for (int i = 0; i < 250; ++i) Add(1, 10);
  EXPECT_EQ(batcher.TakeDue(now).size(), 100u);
  EXPECT_EQ(batcher.TakeDue(now).size(), 100u);
  EXPECT_EQ(batcher.TakeDue(now).size(), 50u);
}

TEST_F(BatcherTest, HigherClassesComeFirstAndAgeingMakesUpForIt) {
  Add(1, 10, Priority::kBatch);
  Add(1, 10, Priority::kNormal);
  Add(1, 10, Priority::kInteractive);
  EXPECT_THAT(Due(), ElementsAre(2, 1, 0));
  Add(1, 10, Priority::kBatch);
  now += 2 * Batcher::kAgeingStep + 1;
  Add(1, 10, Priority::kInteractive);
  EXPECT_THAT(Due(), ElementsAre(3, 4));
}

TEST_F(BatcherTest, DecodeThatTakesTooLongIsSpreadOverSteps) {
  Calibrate(kMillisecond, 1000);  // two heads: 2 ms an item
  for (int i = 0; i < 5; ++i) Add(1, 1000, Priority::kBatch);
  Add(1, 1000, Priority::kInteractive);
  EXPECT_THAT(Due(), ElementsAre(5, 0));
  EXPECT_THAT(Due(), ElementsAre(1, 2));
  EXPECT_THAT(Due(), ElementsAre(3, 4));
}

TEST_F(BatcherTest, EverySecondStepHasAUnitOfBulkHoweverMuchDecodeThereIs) {
  Calibrate(kMillisecond, 1000);
  AttendWork& prefill = Add(64, 1000, Priority::kNormal, 64);
  for (int i = 0; i < 6; ++i) Add(1, 1000);
  EXPECT_THAT(Due(), ElementsAre(1, 2));
  EXPECT_THAT(Due(), ElementsAre(0));
  EXPECT_EQ(prefill.next_key, 64u);
  EXPECT_EQ(prefill.next_kv_head, 0u) << "rows would take too long behind the keys";
  EXPECT_THAT(Due(), ElementsAre(3, 4));
  EXPECT_THAT(Due(), ElementsAre(0));
  EXPECT_EQ(prefill.next_row, 0u);
  EXPECT_EQ(prefill.next_kv_head, 1u) << "one head of one block of rows";
  EXPECT_TRUE(prefill.queued);
}

TEST_F(BatcherTest, AStepStaysNearTheChunkTime) {
  Calibrate(kMicrosecond, 1000);
  Add(100000, 100000);
  for (int step = 0; step < 20; ++step) {
    double units = 0;
    for (const DueChunk& chunk : batcher.TakeDue(now)) units += chunk.units;
    const Nanos time = costs.NanosOf(UnitKind::kPrefill, units);
    EXPECT_LE(time, 5 * kMillisecond);
    EXPECT_GE(time, 4 * kMillisecond) << "step " << step;
  }
}

TEST_F(BatcherTest, NewKeysCountInTheStepAndComeBeforeTheRows) {
  Calibrate(kMicrosecond, 1000);
  costs.Observe({0, 0, costs.AppendUnitsOf(store.spec, 1000)}, 4 * kMillisecond);
  AttendWork& with = Add(10000, 10000, Priority::kNormal, 1000);
  const std::vector<DueChunk>& due = batcher.TakeDue(now);
  ASSERT_FALSE(due.empty());
  EXPECT_EQ(due[0].key_begin, 0u);
  EXPECT_EQ(due[0].key_end, 1000u);
  double rows = 0;
  for (const DueChunk& chunk : due) {
    EXPECT_EQ(chunk.has_keys(), &chunk == &due[0]);
    EXPECT_TRUE(chunk.has_rows());
    rows += chunk.units;
  }
  EXPECT_LE(costs.NanosOf(UnitKind::kPrefill, rows), kMillisecond);
  EXPECT_TRUE(with.queued);
}

TEST_F(BatcherTest, ALongAppendIsSpreadOverStepsNearTheChunkTime) {
  costs.Observe({0, 0, costs.AppendUnitsOf(store.spec, 1000)}, 4 * kMillisecond);
  for (const uint32_t q_len : {0u, 100u}) {
    AttendWork& work = Add(q_len, 5000, Priority::kNormal, 5000);
    uint32_t key = 0;
    for (int step = 0; work.next_key < 5000; ++step) {
      const std::vector<DueChunk>& due = batcher.TakeDue(now);
      ASSERT_FALSE(due.empty()) << step;
      EXPECT_EQ(due[0].key_begin, key);
      EXPECT_EQ(work.next_key, due[0].key_end);
      if (due[0].key_end == 5000) break;
      ASSERT_EQ(due.size(), 1u) << "no row before the last key";
      EXPECT_FALSE(due[0].has_rows());
      const Nanos time = costs.NanosOf(UnitKind::kAppend, due[0].append_units);
      EXPECT_LE(time, 5 * kMillisecond);
      EXPECT_GE(time, 4 * kMillisecond);
      key = due[0].key_end;
      EXPECT_EQ(key % 16, 0u);
      ASSERT_TRUE(work.queued);
    }
    while (!batcher.empty()) batcher.TakeDue(now);
    EXPECT_EQ(work.next_row, q_len);
  }
}

TEST_F(BatcherTest, AShortAppendWithoutRowsIsOneChunk) {
  Add(0, 5000, Priority::kNormal, 5000);
  const std::vector<DueChunk>& due = batcher.TakeDue(now);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].key_end, 5000u);
  EXPECT_FALSE(due[0].has_rows());
  EXPECT_TRUE(batcher.empty());
}

TEST_F(BatcherTest, ShortPromptsPassLongOnesUntilTheseHaveWaited) {
  Calibrate(kMicrosecond, 1000);
  AttendWork& big = Add(50000, 50000);  // about 150 ms
  AttendWork& small = Add(32, 1000);
  EXPECT_EQ(Due().front(), small.index);
  EXPECT_FALSE(small.queued);
  now += 300 * kMillisecond;
  AttendWork& later = Add(32, 1000);
  EXPECT_EQ(Due().front(), big.index);
  EXPECT_TRUE(later.queued);
}

TEST_F(BatcherTest, RemovedWorkIsNotDue) {
  Add(1, 10);
  AttendWork& prefill = Add(100, 100);
  batcher.Remove(works[0]);
  batcher.Remove(prefill);
  batcher.Remove(prefill);
  EXPECT_TRUE(batcher.empty());
  EXPECT_TRUE(batcher.TakeDue(now).empty());
}

// Chunks of an item cover every (row, head) once, cut at absolute multiples and between heads.
TEST_F(BatcherTest, ChunksCoverAnItemExactlyOnceAndCutWhereTheyMay) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    Batcher fresh({.chunk_time = random.Integer(1, 300) * kMicrosecond}, &costs);
    AttendItem item;
    item.q_len = static_cast<uint32_t>(random.Integer(17, 300));
    item.kv_new_len = static_cast<uint32_t>(random.Integer(0, 300));
    item.expected_len = static_cast<uint32_t>(random.Integer(0, 100));
    AttendWork work;
    work.item = &item;
    work.store = &store;
    work.kv_end = static_cast<uint32_t>(random.Integer(0, 2000));
    work.q_start = random.Integer(-100, 1000);
    fresh.Add(work, now);
    std::vector<int> covered(item.q_len * kHeads, 0);
    uint32_t keys = 0;
    while (!fresh.empty()) {
      for (const DueChunk& chunk : fresh.TakeDue(now)) {
        EXPECT_EQ(chunk.key_begin, keys);
        keys = chunk.key_end;
        EXPECT_TRUE(keys == item.kv_new_len || (item.expected_len + keys) % 16 == 0) << keys;
        if (!chunk.has_rows()) continue;
        EXPECT_EQ(keys, item.kv_new_len) << "rows before their keys";
        const int64_t begin = work.q_start + chunk.row_begin;
        const int64_t end = work.q_start + chunk.row_end;
        EXPECT_TRUE(chunk.row_begin == 0 || begin % 16 == 0) << begin;
        EXPECT_TRUE(chunk.row_end == item.q_len || end % 16 == 0) << end;
        ASSERT_LT(chunk.kv_head_begin, chunk.kv_head_end);
        for (uint32_t row = chunk.row_begin; row < chunk.row_end; ++row) {
          for (uint32_t h = chunk.kv_head_begin; h < chunk.kv_head_end; ++h) {
            ++covered[row * kHeads + h];
          }
        }
      }
    }
    EXPECT_THAT(covered, ::testing::Each(1));
  }
}

TEST_F(BatcherTest, DecodeRowsAreNeverCut) {
  Calibrate(kSecond, 1000);
  AttendWork& work = Add(16, 1000, Priority::kNormal, 17);
  EXPECT_EQ(work.lane, Lane::kBulk);
  EXPECT_FALSE(batcher.TakeDue(now)[0].has_rows()) << "17 keys have used up the step's time";
  const std::vector<DueChunk>& due = batcher.TakeDue(now);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].row_end, 16u);
  EXPECT_EQ(due[0].kv_head_end, kHeads);
}

TEST(CostModelTest, LearnsEachKindApart) {
  auto backend = test::CreateFakeBackend(std::make_shared<test::FakeDevice>());
  CostModel costs(backend.get());
  for (int i = 0; i < 50; ++i) {
    costs.Observe({1e6, 0}, 2 * kMillisecond);
    costs.Observe({1e6, 1e6}, 7 * kMillisecond);
    costs.Observe({0, 0, 1e6}, 9 * kMillisecond);
    costs.Observe({0, 1e5, 1e6}, 9 * kMillisecond + kMillisecond / 2);
    costs.Observe({0, 1e6, 1e5}, 5 * kMillisecond + kMillisecond * 9 / 10);
  }
  EXPECT_NEAR(double(costs.NanosOf(UnitKind::kDecode, 1e6)), 2e6, 1e4);
  EXPECT_NEAR(double(costs.NanosOf(UnitKind::kPrefill, 1e6)), 5e6, 1e5);
  EXPECT_NEAR(double(costs.NanosOf(UnitKind::kAppend, 1e6)), 9e6, 1e5);
  EXPECT_NEAR(costs.UnitsIn(UnitKind::kDecode, 2 * kMillisecond), 1e6, 1e4);
}

TEST(CostModelTest, LaunchesWithoutTimeTeachNothing) {
  auto backend = test::CreateFakeBackend(std::make_shared<test::FakeDevice>());
  CostModel costs(backend.get());
  const Nanos before = costs.NanosOf(UnitKind::kPrefill, 1e6);
  costs.Observe({0, 1e9}, 0);
  costs.Observe({0, 10}, 10 * kMicrosecond);
  EXPECT_EQ(costs.NanosOf(UnitKind::kPrefill, 1e6), before);
}

TEST(CostModelTest, OneInterruptedLaunchIsSoonForgotten) {
  auto backend = test::CreateFakeBackend(std::make_shared<test::FakeDevice>());
  CostModel costs(backend.get());
  for (int i = 0; i < 10; ++i) costs.Observe({1e4, 0}, 100 * kMicrosecond);
  costs.Observe({1e4, 0}, kSecond);
  EXPECT_LE(costs.NanosOf(UnitKind::kDecode, 1e4), 121 * kMicrosecond);
  // Short launches correct an estimate that is too high, too.
  for (int i = 0; i < 50; ++i) costs.Observe({1e4, 0}, 10 * kMicrosecond);
  EXPECT_LT(costs.NanosOf(UnitKind::kDecode, 1e4), 51 * kMicrosecond);
}

}  // namespace
}  // namespace attn::server
