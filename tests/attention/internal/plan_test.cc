// A plan does every row and every leaf of every head exactly once, whatever it cuts.
#include "attention/plan/plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/attention/internal/plan_check.h"

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

class PlanTest : public testing::TestWithParam<uint32_t> {
 protected:
  std::mt19937 random_{GetParam()};
};

TEST_P(PlanTest, EveryRowAndLeafIsDoneExactlyOnceAndSplitsAreAlignedRunsWithPartialsOfTheirOwn) {
  Plan plan;
  size_t num_splits = 0;
  for (int round = 0; round < 2000; ++round) {
    const AttentionSpec spec = RandomSpec(random_);
    const std::vector<AttendEntry> entries = RandomEntries(spec, random_);
    const Limits limits{.num_threads = 1 + static_cast<int>(random_() % 16),
                        .max_prefill_rows = 192};
    plan.Build(spec, entries, limits);
    ASSERT_EQ(FaultOf(plan, spec, entries, limits), "") << "round " << round;
    num_splits += plan.splits().size();
  }
  EXPECT_GT(num_splits, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanTest, testing::Values(7u, 70u, 700u));

// A plan is at fault for entries that it was not made of.
TEST(PlanCheckTest, SeesARowALeafAndAHeadThatAreMissing) {
  AttentionSpec spec;
  spec.num_q_heads = spec.num_kv_heads = 2;
  spec.head_dim_qk = spec.head_dim_v = 64;
  AttendEntry prefill;
  prefill.q_len = 200;
  prefill.kv_end = 1000;
  prefill.kv_head_end = 1;
  prefill.row_class = RowClass::kPrefill;
  AttendEntry decode;
  decode.q_start = 99'999;
  decode.q_len = 1;
  decode.kv_end = 100'000;
  decode.kv_head_end = 1;
  const Limits limits{.num_threads = 8, .max_prefill_rows = 192};
  Plan plan;
  plan.Build(spec, {prefill, decode}, limits);
  ASSERT_EQ(FaultOf(plan, spec, {prefill, decode}, limits), "");
  ASSERT_FALSE(plan.splits().empty());
  const auto fault_for = [&](AttendEntry first, AttendEntry second) {
    return FaultOf(plan, spec, {first, second}, limits);
  };
  AttendEntry changed = prefill;
  changed.q_len = 201;
  EXPECT_NE(fault_for(changed, decode), "");
  changed = prefill;
  changed.kv_head_end = 2;
  EXPECT_NE(fault_for(changed, decode), "");
  changed = decode;
  changed.kv_end = 101'000;
  changed.q_start = 100'999;
  EXPECT_NE(fault_for(prefill, changed), "");
  EXPECT_NE(FaultOf(plan, spec, {prefill}, limits), "");
  spec.head_dim_v = 65;
  EXPECT_NE(fault_for(prefill, decode), "") << "partials of a larger row do not fit";
}

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
