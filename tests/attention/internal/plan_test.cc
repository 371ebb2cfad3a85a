// A plan does every row and every leaf of every head exactly once, whatever it cuts.
#include "attention/plan/plan.h"

#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "attention/score/lower.h"
#include "gtest/gtest.h"

namespace attn::plan {
namespace {

AttentionSpec RandomSpec(std::mt19937& random) {
  AttentionSpec spec;
  spec.num_kv_heads = 1 + static_cast<uint32_t>(random() % 8);
  spec.num_q_heads = spec.num_kv_heads * (1 + static_cast<uint32_t>(random() % 5));
  spec.head_dim_qk = spec.head_dim_v = 128;
  if (random() % 3 == 0) spec.score.window.left = static_cast<uint32_t>(random() % 3000);
  return spec;
}

std::vector<AttendEntry> RandomEntries(const AttentionSpec& spec, std::mt19937& random) {
  std::vector<AttendEntry> entries(random() % 12);
  for (AttendEntry& entry : entries) {
    entry.kv_end = static_cast<int32_t>(random() % 2 != 0 ? random() % 200000 : random() % 600);
    entry.q_len = static_cast<int32_t>(random() % 2 != 0 ? random() % 18 : random() % 500);
    entry.q_start = int64_t{entry.kv_end} - entry.q_len;
    entry.kv_head_begin = static_cast<uint32_t>(random() % spec.num_kv_heads);
    entry.kv_head_end =
        entry.kv_head_begin +
        static_cast<uint32_t>(random() % (spec.num_kv_heads + 1 - entry.kv_head_begin));
    entry.row_class = ClassOf(static_cast<uint32_t>(entry.q_len));
  }
  return entries;
}

score::Interval LeavesOfEntry(const AttentionSpec& spec, const AttendEntry& entry) {
  return LeavesOf(
      score::RangeOf(spec, entry).KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1));
}

class PlanTest : public testing::TestWithParam<uint32_t> {
 protected:
  std::mt19937 random_{GetParam()};
};

TEST_P(PlanTest, EveryRowAndLeafIsDoneExactlyOnce) {
  Plan plan;
  for (int round = 0; round < 200; ++round) {
    const AttentionSpec spec = RandomSpec(random_);
    const std::vector<AttendEntry> entries = RandomEntries(spec, random_);
    const int threads = 1 + static_cast<int>(random_() % 16);
    plan.Build(spec, entries, {.num_threads = threads, .max_prefill_rows = 192});

    std::map<std::tuple<uint32_t, uint32_t, int64_t>, int> done;
    for (const Task& task : plan.tasks()) {
      const AttendEntry& entry = entries[task.entry];
      ASSERT_EQ(task.row_class, entry.row_class);
      ASSERT_LT(task.kv_head_begin, task.kv_head_end);
      for (uint32_t head = task.kv_head_begin; head < task.kv_head_end; ++head) {
        if (task.begin == task.end) ++done[{task.entry, head, 0}];
        for (int64_t i = task.begin; i < task.end; ++i) ++done[{task.entry, head, i}];
      }
      if (task.row_class == RowClass::kPrefill) {
        ASSERT_LE(task.end - task.begin, 192);
      }
    }
    size_t wanted = 0;
    for (uint32_t e = 0; e < entries.size(); ++e) {
      const AttendEntry& entry = entries[e];
      if (entry.q_len == 0) continue;
      score::Interval units = {0, int64_t{entry.q_len} * spec.group_size()};
      if (entry.row_class == RowClass::kDecode) units = LeavesOfEntry(spec, entry);
      if (units.empty()) units = {0, 1};  // rows that see nothing are still written
      for (uint32_t head = entry.kv_head_begin; head < entry.kv_head_end; ++head) {
        for (int64_t i = units.begin; i < units.end; ++i, ++wanted) {
          const auto found = done.find({e, head, i});
          ASSERT_TRUE(found != done.end() && found->second == 1)
              << "entry " << e << " head " << head << " unit " << i;
        }
      }
    }
    ASSERT_EQ(done.size(), wanted);
  }
}

TEST_P(PlanTest, SplitsAreAlignedRunsWithPartialsOfTheirOwn) {
  Plan plan;
  int num_splits = 0;
  for (int round = 0; round < 100; ++round) {
    const AttentionSpec spec = RandomSpec(random_);
    const std::vector<AttendEntry> entries = RandomEntries(spec, random_);
    plan.Build(spec, entries, {.num_threads = 16, .max_prefill_rows = 192});
    std::vector<int64_t> tasks_of(plan.splits().size());
    for (const Task& task : plan.tasks()) {
      if (task.split == kNoSplit) continue;
      const Split& split = plan.splits()[static_cast<size_t>(task.split)];
      ++tasks_of[static_cast<size_t>(task.split)];
      ASSERT_EQ(split.entry, task.entry);
      ASSERT_EQ(split.kv_head, task.kv_head_begin);
      const int64_t run = task.begin >> split.runs.log2_leaves;
      ASSERT_EQ(run, (task.end - 1) >> split.runs.log2_leaves);
      ASSERT_LT(run - split.runs.first_run, split.runs.num_runs);
    }
    int64_t next_partial = 0;
    for (size_t i = 0; i < plan.splits().size(); ++i, ++num_splits) {
      const Split& split = plan.splits()[i];
      ASSERT_EQ(tasks_of[i], split.runs.num_runs);
      ASSERT_EQ(split.first_partial, next_partial);
      const int64_t rows = int64_t{entries[split.entry].q_len} * spec.group_size();
      next_partial += split.runs.num_runs * rows * (2 + 128);
    }
    ASSERT_EQ(plan.partial_floats(), next_partial);
  }
  EXPECT_GT(num_splits, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanTest, testing::Values(7u, 70u, 700u));

TEST(PlanTest, LongTasksComeFirst) {
  AttentionSpec spec;
  spec.head_dim_qk = spec.head_dim_v = 64;
  std::vector<AttendEntry> entries(64);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].q_len = 1;
    entries[i].kv_end = static_cast<int32_t>(1 + i * i * 40);
    entries[i].q_start = entries[i].kv_end - 1;
    entries[i].kv_head_end = 1;
  }
  Plan plan;
  plan.Build(spec, entries, {.num_threads = 2, .max_prefill_rows = 192});
  for (size_t i = 1; i < plan.tasks().size(); ++i) {
    EXPECT_GE(2.001f * plan.tasks()[i - 1].nanos + 1, plan.tasks()[i].nanos);
  }
}

}  // namespace
}  // namespace attn::plan
