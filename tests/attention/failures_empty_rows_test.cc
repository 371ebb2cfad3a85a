// Public failures of other kernels: rows and requests with nothing to attend to, and memory that is
// stale, poisoned or too small. Each test names the reports it follows.
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/random.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Both causal and not.
void ExpectReferenceEitherWay(AttentionCase attention_case) {
  ExpectReference(attention_case);
  for (CaseItem& item : attention_case.items) item.causal = false;
  ExpectReference(attention_case);
}

TEST(EmptyRowsTest, VeryNegativeScoresAreScoresAndNotAMask) {
  // flashinfer-ai/flashinfer #4267, #4450, #4451: a finite "minus infinity" of about -5e4.
  for (const int32_t num_keys : {1, 2}) {
    Problem problem = MakeProblem(BottomRightCase(SpecOf(32, 32, 128), {{1, num_keys}}, 1));
    problem.spec.score.softmax_scale = 66856.0f / 524288.0f;
    FillTensor(problem, problem.tensors[0].q, 64.0f);
    FillTensor(problem, problem.tensors[0].k, -64.0f);  // q·k = -524288
    ExpectReference(problem);
    const auto outputs = RunOnBackend(CpuBackendOf(1), problem, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_NEAR((*outputs)[0].lse[0], -66856 + std::log(num_keys), 0.05);
  }
}

TEST(EmptyRowsTest, LeadingRowsOfMoreRowsThanKeysSeeNothing) {
  // flashinfer-ai/flashinfer #4452; Dao-AILab/flash-attention #1778.
  ExpectReference(BottomRightCase(SpecOf(8, 2, 128), {{8, 3}, {5, 5}, {1, 1}}, 2));
  ExpectReference(BottomRightCase(SpecOf(1, 1, 16), {{2048, 1024}}, 3));
}

TEST(EmptyRowsTest, NoKeysAtAllEndsWithZeros) {
  // flashinfer-ai/flashinfer PR 1198: a request with kv_len 0 spun for ever.
  for (const int32_t q_len : {1, 20}) {
    ExpectReferenceEitherWay(BottomRightCase(SpecOf(4, 2, 64), {{q_len, 0}}, 4));
    std::vector<Lengths> all_empty(64, {q_len, 0});
    ExpectReferenceEitherWay(BottomRightCase(SpecOf(4, 2, 64), all_empty, 5));
    all_empty.back().kv_len = 40;
    ExpectReferenceEitherWay(BottomRightCase(SpecOf(4, 2, 64), all_empty, 6));
  }
}

TEST(EmptyRowsTest, ShortRequestsBesideAVeryLongOneAreAllWritten) {
  // flashinfer-ai/flashinfer #1395, PR 1533: the long one chose the splits of the short ones.
  std::vector<Lengths> items = {{1, 40000}};
  for (int32_t kv_len = 1; kv_len <= 15; ++kv_len) items.push_back({1, kv_len});
  ExpectReference(BottomRightCase(SpecOf(2, 1, 32), items, 7));
}

TEST(EmptyRowsTest, ARequestWithoutRowsLeavesItsMatesBitsAlone) {
  // Dao-AILab/flash-attention #1713.
  const AttentionSpec spec = SpecOf(2, 1, 128);
  ExpectReferenceEitherWay(BottomRightCase(spec, {{150, 100}, {0, 100}, {150, 100}}, 8));
  const AttentionCase some_empty =
      BottomRightCase(spec, {{3, 3}, {0, 64}, {5, 70}, {0, 1}, {1, 200}}, 9);
  ExpectReference(some_empty);
  const Problem with = MakeProblem(some_empty);
  const Problem without{with.spec,
                        {with.items[0], with.items[2], with.items[4]},
                        {with.tensors[0], with.tensors[2], with.tensors[4]}};
  const auto got_with = RunOnBackend(CpuBackendOf(2), with, {});
  const auto got_without = RunOnBackend(CpuBackendOf(2), without, {});
  ASSERT_TRUE(got_with.ok() && got_without.ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE((*got_with)[2 * i] == (*got_without)[i]) << i;
}

TEST(EmptyRowsTest, SingleRowsAmongEmptyRequestsKeepTheirHeads) {
  // Dao-AILab/flash-attention #1537, #1619: heads swapped into rows when no request has two.
  ExpectReference(BottomRightCase(SpecOf(21, 7, 120), {{0, 0}, {0, 0}, {0, 0}, {1, 1}}, 10));
  ExpectReference(BottomRightCase(SpecOf(9, 3, 64), {{1, 3}, {0, 0}, {1, 5}}, 11));
}

TEST(EmptyRowsTest, LseOfEmptyTilesLandsNowhereElse) {
  // Dao-AILab/flash-attention #2842.
  ExpectReference(BottomRightCase(SpecOf(4, 4, 64), {{130, 130}, {0, 0}, {1, 1}, {257, 257}}, 12));
}

TEST(EmptyRowsTest, ATileFullyMaskedBeforeTheFirstVisibleOneGivesNoNan) {
  // pytorch/pytorch #127055, PR 130014: window mask on the CPU, n = 640.
  for (const DType dtype : kDTypes) {
    AttentionSpec spec = SpecOf(1, 1, 64, dtype);
    spec.score.window.left = 127;
    spec.score.window.right = 0;
    ExpectReference(BottomRightCase(spec, {{640, 640}}, 13));
    ExpectReference(BottomRightCase(spec, {{1, 640}, {16, 640}}, 14));
  }
}

TEST(EmptyRowsTest, LeadingMaskedRowsDoNotSpoilTheirTile) {
  // ikawrakow/ik_llama.cpp #2344: rows 0 to 6 of 16 see nothing.
  for (const DType dtype : kDTypes) {
    AttentionCase negative_start = BottomRightCase(SpecOf(4, 2, 128, dtype), {{16, 64}}, 15);
    negative_start.items[0].q_start = -7;
    ExpectReference(negative_start);
  }
}

TEST(StaleMemoryTest, UnusedSlotsOfTheLastPageNeverMatter) {
  // flashinfer-ai/flashinfer #1018, #941, PR 945; Dao-AILab/flash-attention #1745. Unused slots
  // hold NaN in every run here; the bits must be those of every other page size.
  for (const DType dtype : kDTypes) {
    for (const int32_t q_len : {1, 33}) {
      std::vector<ItemOutput> bits;
      for (const uint32_t page_size : {1u, 16u, 64u, 256u}) {
        AttentionSpec spec = SpecOf(4, 2, 64, dtype);
        spec.page_size = page_size;
        const Problem problem = MakeProblem(BottomRightCase(spec, {{q_len, 33}}, 16));
        ExpectReference(problem);
        bits.push_back(RunOnBackend(CpuBackendOf(2), problem, {}).value()[0]);
        EXPECT_TRUE(bits.back() == bits.front()) << page_size;
      }
    }
  }
}

TEST(StaleMemoryTest, ScratchIsNotAssumedToBeZero) {
  // flashinfer-ai/flashinfer #1928, PR 2002, PR 1643: split decode again and again, with other
  // batch sizes in between, so that the scratch lies elsewhere.
  const Problem probe = MakeProblem(BottomRightCase(SpecOf(4, 1, 64), {{1, 5000}}, 17));
  const ItemOutput first = RunOnBackend(CpuBackendOf(3), probe, {}).value()[0];
  for (const int num_mates : {1, 7, 30, 2}) {
    const std::vector<Lengths> mates(static_cast<size_t>(num_mates), {1, 700});
    ExpectReference(CpuBackendOf(3), MakeProblem(BottomRightCase(SpecOf(8, 2, 128), mates, 18)));
    EXPECT_TRUE(RunOnBackend(CpuBackendOf(3), probe, {}).value()[0] == first) << num_mates;
  }
}

TEST(StaleMemoryTest, AnyTotalOfQueryRowsIsTakenInOneBatch) {
  // flashinfer-ai/flashinfer #1367, PR 2802: a buffer of 32768 entries.
  const AttentionSpec spec = SpecOf(1, 1, 8, DType::kBFloat16);
  for (const int32_t total : {32767, 32768, 32769, 65537}) {
    std::vector<Lengths> items(static_cast<size_t>(total / 17), {17, 20});
    items.push_back({total % 17, 20});
    ExpectReference(CpuBackendOf(2), MakeProblem(BottomRightCase(spec, items, 19)));
  }
}

TEST(StaleMemoryTest, TwoBackendsAtWorkAtOnceShareNothing) {
  // Dao-AILab/flash-attention PR 1957, PR 2063; alibaba/rtp-llm PR 1084.
  const auto decode_on_a_backend = [](uint64_t seed, int* num_wrong) {
    const std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 2}).value();
    Random random(seed);
    for (int step = 0; step < 60; ++step) {
      const Lengths lengths{1, static_cast<int32_t>(random.Integer(1, 900))};
      const Problem problem =
          MakeProblem(BottomRightCase(SpecOf(4, 2, 32), {lengths}, random.Next()));
      const auto outputs = RunOnBackend(*backend, problem, {});
      *num_wrong +=
          !outputs.ok() || !IsWithinTolerance(problem, 0, ExpectedOf(problem, 0), outputs->front());
    }
  };
  int wrong[] = {0, 0};
  std::thread other(decode_on_a_backend, 20, &wrong[0]);
  decode_on_a_backend(21, &wrong[1]);
  other.join();
  EXPECT_EQ(wrong[0], 0);
  EXPECT_EQ(wrong[1], 0);
}

}  // namespace
}  // namespace attn::test
