// Public failures of other kernels: lse, splits, group sizes, dims, pages, large sizes, caps, sinks
// and extreme scores. Each test names the reports it follows.
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

std::vector<ItemOutput> MustRun(const Problem& problem) {
  auto outputs = RunOnBackend(CpuBackendOf(2), problem, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<ItemOutput>(problem.items.size());
}

TEST(LseTest, ItIsTheNaturalLogOfTheDenominator) {
  // flashinfer-ai/flashinfer #2113, #4485; vllm-project/vllm PR 52796: base 2.
  for (const int32_t kv_len : {1, 2, 1000}) {
    for (const int32_t q_len : {1, 17}) {
      Problem problem = MakeProblem(BottomRightCase(SpecOf(2, 1, 64), {{q_len, kv_len}}, 1));
      FillTensor(problem, problem.tensors[0].q, 0.0f);
      EXPECT_NEAR(MustRun(problem)[0].lse.back(), std::log(kv_len), 1e-4);
    }
  }
}

TEST(LseTest, EveryHeadOfAGroupIsWritten) {
  // NVIDIA/cudnn-frontend #1083; flashinfer-ai/flashinfer PR 5245.
  for (const auto& [q_heads, kv_heads] :
       std::vector<std::pair<uint32_t, uint32_t>>{{8, 2}, {32, 8}, {8, 8}}) {
    ExpectReference(BottomRightCase(SpecOf(q_heads, kv_heads, 128), {{1, 300}, {2, 300}}, 2));
  }
}

TEST(LseTest, ItIsWrittenForShortAndLongKeysAlikeAndOnlyWhenWanted) {
  // flashinfer-ai/flashinfer PR 50: stored only where the work was not split.
  AttentionCase both = BottomRightCase(SpecOf(2, 1, 32), {{1, 100}, {1, 100000}}, 3);
  ExpectReference(CpuBackendOf(2), MakeProblem(both));
  const std::vector<ItemOutput> with = MustRun(MakeProblem(both));
  for (CaseItem& item : both.items) item.wants_lse = false;
  const std::vector<ItemOutput> without = MustRun(MakeProblem(both));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(with[i].out, without[i].out);
}

TEST(SplitTest, LargeValuesOverLongKeysKeepTheirPrecision) {
  // vllm-project/vllm-xpu-kernels PR 204: partial results were rounded to 16 bits.
  for (const DType dtype : kDTypes) {
    AttentionSpec spec = SpecOf(1, 1, 16, dtype);
    Problem problem = MakeProblem(BottomRightCase(spec, {{1, 65536}, {1, 40}}, 4));
    problem.tensors[0].v = NormalTensor(dtype, 65536 * 16, 4, 100.0);
    for (CaseItem& item : problem.items) item.out_dtype = DType::kFloat32;
    ExpectReference(CpuBackendOf(2), problem);
    const Problem mate{problem.spec, {problem.items[1]}, {problem.tensors[1]}};
    EXPECT_TRUE(MustRun(problem)[1] == MustRun(mate)[0]);
  }
}

TEST(SplitTest, RaggedPagedRequestsOfAllLengthsStandTogether) {
  // Dao-AILab/flash-attention #1217, PR 2550.
  AttentionSpec spec = SpecOf(2, 1, 32);
  spec.page_size = 64;
  ExpectReference(CpuBackendOf(2), MakeProblem(BottomRightCase(
                                       spec, {{1, 9000}, {9, 9}, {200, 700}, {1, 64000}}, 5)));
}

TEST(SplitTest, TheCapHoldsBeyondTheFirstTile) {
  // flashinfer-ai/flashinfer PR 3890.
  AttentionSpec spec = SpecOf(2, 1, 32);
  spec.score.logit_soft_cap = 5.0f;
  ExpectReference(CpuBackendOf(2), MakeProblem(BottomRightCase(spec, {{1, 50000}}, 6)));
}

TEST(SplitTest, OneRequestMayHaveOneRowOrTwoThousand) {
  // flashinfer-ai/flashinfer #1898, PR 1912.
  ExpectReference(BottomRightCase(SpecOf(1, 1, 16), {{1, 2000}}, 7));
  ExpectReference(BottomRightCase(SpecOf(1, 1, 16), {{2000, 2000}}, 8));
}

TEST(SplitTest, AGroupThatDoesNotDivideTheTileKeepsRowsApart) {
  // flashinfer-ai/flashinfer PR 1614, PR 1148; Dao-AILab/flash-attention #2300.
  for (const auto& [q_heads, kv_heads] :
       std::vector<std::pair<uint32_t, uint32_t>>{{28, 4}, {7, 1}}) {
    for (const int32_t q_len : {1, 2, 3, 33}) {
      ExpectReference(BottomRightCase(SpecOf(q_heads, kv_heads, 32), {{q_len, 40}}, 9));
    }
    ExpectReference(BottomRightCase(SpecOf(q_heads, kv_heads, 32), {{3, 5000}}, 10));
  }
}

TEST(SplitTest, APageTableMayHaveAnyWidth) {
  // flashinfer-ai/flashinfer #3915, PR 3916: 33 columns failed.
  ExpectReference(BottomRightCase(SpecOf(4, 2, 64), {{1, 528}, {1, 8}}, 11));
}

TEST(SplitTest, KeysThatGrowAcrossTilesStepByStepAreRight) {
  // alibaba/rtp-llm PR 1084; huggingface/transformers PR 45323: a plan not refreshed as keys grow.
  for (const int32_t kv_len : {900, 127, 128, 129, 8191, 8192, 8193, 255, 256, 257, 900}) {
    ExpectReference(CpuBackendOf(2),
                    MakeProblem(BottomRightCase(SpecOf(2, 1, 32), {{1, kv_len}}, 12)));
  }
}

TEST(SizeTest, KeysBeyondSixteenBitsAndZeroInputsAreRight) {
  // Dao-AILab/flash-attention PR 2662; facebookresearch/xformers #719: 33728 zeros gave NaN.
  Problem zeros = MakeProblem(BottomRightCase(SpecOf(1, 1, 8), {{40, 33728}, {1, 70000}}, 13));
  for (ItemTensors& tensors : zeros.tensors) {
    FillTensor(zeros, tensors.q, 0.0f);
    FillTensor(zeros, tensors.k, 0.0f);
  }
  ExpectReference(CpuBackendOf(2), zeros);
}

TEST(SizeTest, SeventyThousandSequencesInOneLaunchAreAllWritten) {
  // Dao-AILab/flash-attention #1786, #1812; pytorch/pytorch #146704: limits of 65535.
  AttentionSpec spec = SpecOf(1, 1, 8);
  spec.page_size = 1;
  ExpectReference(CpuBackendOf(2),
                  MakeProblem(BottomRightCase(spec, std::vector<Lengths>(70000, {1, 1}), 14)));
}

TEST(SizeTest, LargePagesAreRightBeyondOneTile) {
  // flashinfer-ai/flashinfer #4347: page 256 was wrong above 4096 keys.
  AttentionSpec spec = SpecOf(2, 1, 32);
  spec.page_size = 256;
  for (const int32_t kv_len : {4095, 4096, 4097, 5000, 20000}) {
    ExpectReference(BottomRightCase(spec, {{1, kv_len}}, 15));
  }
}

TEST(ShapeTest, EveryGroupSizeIsRight) {
  // flashinfer-ai/flashinfer #996, #2849; pytorch/pytorch #151359; ikawrakow/ik_llama.cpp #1520.
  for (const uint32_t group :
       {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 14u, 16u, 24u, 32u, 64u, 128u}) {
    for (const DType dtype : kDTypes) {
      ExpectReference(
          BottomRightCase(SpecOf(group, 1, 64, dtype), {{1, 50}, {2, 50}, {17, 50}}, group));
    }
  }
}

TEST(ShapeTest, AsManyKvHeadsAsQueryHeadsIsRightWithSmallPages) {
  // flashinfer-ai/flashinfer PR 4095; Dao-AILab/flash-attention #1572.
  AttentionSpec spec = SpecOf(32, 32, 64);
  spec.page_size = 8;
  ExpectReference(CpuBackendOf(2), MakeProblem(BottomRightCase(spec, {{1, 128}, {1, 2000}}, 16)));
}

TEST(ShapeTest, DimsOffTheUsualListAreRight) {
  // Dao-AILab/flash-attention #1070, #1290, #28, #277, #579.
  for (const DType dtype : kDTypes) {
    for (const uint32_t dim : {32u, 40u, 64u, 72u, 80u, 96u, 112u, 128u, 160u, 192u, 256u}) {
      ExpectReference(BottomRightCase(SpecOf(2, 1, dim, dtype), {{1, 70}, {20, 300}}, dim));
    }
    AttentionSpec narrow_v = SpecOf(2, 1, 192, dtype);
    narrow_v.head_dim_v = 128;
    ExpectReference(BottomRightCase(narrow_v, {{1, 70}, {20, 300}}, 17));
  }
}

TEST(ShapeTest, EveryPageSizeGivesTheSameBits) {
  // flashinfer-ai/flashinfer #320, #490, #1024; vllm-project/vllm #41339 (pages below 16).
  for (const DType dtype : kDTypes) {
    const AttentionCase base = BottomRightCase(SpecOf(2, 1, 64, dtype), {{1, 300}, {20, 300}}, 18);
    ExpectReference(base);
    const std::vector<ItemOutput> want = MustRun(MakeProblem(base));
    for (const uint32_t page_size : {1u, 2u, 3u, 4u, 7u, 8u, 48u, 64u, 100u, 128u, 256u, 512u}) {
      AttentionCase paged = base;
      paged.spec.page_size = page_size;
      const std::vector<ItemOutput> got = MustRun(MakeProblem(paged));
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == want[i]) << page_size;
    }
  }
}

TEST(ShapeTest, SlotsUsedInPartAreReadInPart) {
  // Dao-AILab/flash-attention #2163, PR 2167, PR 2315: used lengths were dropped.
  AttentionSpec spec = SpecOf(2, 1, 64);
  spec.page_size = 256;
  ExpectReference(BottomRightCase(spec, {{1, 1}, {1, 255}, {1, 256}, {1, 0}}, 19));
  ExpectReference(BottomRightCase(spec, {{20, 1}, {20, 255}, {20, 256}, {20, 0}}, 20));
}

TEST(ScoreTest, CapWithWindowGroupsAndDecodeIsRight) {
  // sgl-project/sglang #33915: the combination was compiled out.
  for (const float cap : {30.0f, 50.0f}) {
    for (const bool is_windowed : {false, true}) {
      for (const uint32_t group : {1u, 4u}) {
        AttentionSpec spec = SpecOf(group, 1, 64);
        spec.score.logit_soft_cap = cap;
        if (is_windowed) spec.score.window.left = 100;
        ExpectReference(BottomRightCase(spec, {{1, 1500}, {40, 300}}, 21));
      }
    }
  }
}

TEST(ScoreTest, ASinkAsHeavyAsAllKeysHalvesTheMeanOnEveryPath) {
  // vllm-project/vllm PR 52148, PR 22330; kekzl/imp #1345: accepted and not applied.
  for (const DType dtype : kDTypes) {
    for (const int32_t q_len : {1, 16, 17, 60}) {
      for (const int32_t kv_len : {64, 700}) {
        AttentionSpec spec = SpecOf(4, 2, 64, dtype);
        spec.score.sink_logits_per_head = 1;
        AttentionCase halved = BottomRightCase(spec, {{q_len, kv_len}}, 22);
        halved.items[0].causal = false;
        halved.items[0].out_dtype = DType::kFloat32;
        Problem problem = MakeProblem(halved);
        problem.spec.score.sink_logits.assign(4, std::log(static_cast<float>(kv_len)));
        FillTensor(problem, problem.tensors[0].q, 0.0f);
        FillTensor(problem, problem.tensors[0].v, 3.0f);
        for (const double value : MustRun(problem)[0].OutAsDoubles(DType::kFloat32)) {
          ASSERT_NEAR(value, 1.5, 1e-5);
        }
      }
    }
  }
}

TEST(ScoreTest, TheFlagLeavesSinksOut) {
  AttentionSpec spec = SpecOf(4, 2, 64);
  AttentionCase plain = BottomRightCase(spec, {{3, 70}, {30, 300}}, 23);
  const std::vector<ItemOutput> want = MustRun(MakeProblem(plain));
  AttentionCase with_sinks = plain;
  with_sinks.spec.score.sink_logits_per_head = 4;
  FillSinkLogits(with_sinks);
  for (CaseItem& item : with_sinks.items) item.use_sinks = false;
  const std::vector<ItemOutput> got = MustRun(MakeProblem(with_sinks));
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == want[i]) << i;
}

TEST(ScoreTest, ScoresFromZeroToMinusInfinityWeighWhatTheyShould) {
  // After pytorch/pytorch PR 151441: a fast exp wraps below -126 or at -inf.
  AttentionSpec spec = SpecOf(1, 1, 8);
  spec.score.softmax_scale = 1.0f;
  const float scores[] = {
      0.0f,    -1.0f,   -80.0f,  -87.0f,  -87.5f,
      -88.0f,  -88.8f,  -103.0f, -104.0f, -126.0f,
      -127.0f, -200.0f, -1e4f,   -1e30f,  -std::numeric_limits<float>::infinity()};
  const int32_t num_keys = static_cast<int32_t>(std::size(scores));
  for (const int32_t q_len : {1, 17}) {
    for (int32_t watched = 0; watched < num_keys; ++watched) {
      AttentionCase one_row = BottomRightCase(spec, {{q_len, num_keys}}, 24);
      one_row.items[0].causal = false;
      Problem problem = MakeProblem(one_row);
      FillTensor(problem, problem.tensors[0].k, 0.0f);
      FillTensor(problem, problem.tensors[0].v, 0.0f);
      FillTensor(problem, problem.tensors[0].q, 1.0f);
      for (int32_t key = 0; key < num_keys; ++key) {
        SetElement(problem, problem.tensors[0].k, static_cast<size_t>(key) * 8, scores[key]);
      }
      FillVector(problem, problem.tensors[0].v, 1, 8, watched, 0, 1.0f);
      const double got = MustRun(problem)[0].OutAsDoubles(DType::kFloat32)[0];
      const double want = std::exp(static_cast<double>(scores[watched])) / (1 + std::exp(-1.0));
      EXPECT_NEAR(got, want, 1e-6) << scores[watched];
      if (std::isinf(scores[watched])) {
        EXPECT_EQ(got, 0.0);
      }
    }
  }
}

TEST(ScoreTest, HugeLogitsUnderASmallCapGiveTheCapAndNoNan) {
  // vllm-project/vllm #56578: tanh as a quotient of exponentials that overflow.
  for (const DType dtype : kDTypes) {
    for (const float cap : {0.1f, 5.0f, 50.0f}) {
      AttentionCase capped = BottomRightCase(SpecOf(4, 2, 64, dtype), {{2, 300}, {30, 90}}, 25);
      capped.values = Values::kHuge;
      capped.spec.score.softmax_scale = 0.25f;
      capped.spec.score.logit_soft_cap = cap;
      ExpectReference(capped);
    }
  }
}

TEST(ScoreTest, ARowIsTheSameInBothClassesWithinTolerance) {
  // Dao-AILab/flash-attention PR 2595: another exponential on each path.
  const Problem whole = MakeProblem(BottomRightCase(SpecOf(2, 1, 64), {{1000, 1000}}, 26));
  Problem last = whole;
  last.items[0].q_len = 1;
  last.items[0].q_start = 999;
  last.tensors[0].q.erase(last.tensors[0].q.begin(), last.tensors[0].q.end() - 2 * 64 * 4);
  const std::vector<double> prefill = MustRun(whole)[0].OutAsDoubles(DType::kFloat32);
  const std::vector<double> decode = MustRun(last)[0].OutAsDoubles(DType::kFloat32);
  for (size_t i = 0; i < decode.size(); ++i) {
    EXPECT_NEAR(decode[i], prefill[prefill.size() - decode.size() + i], 1e-5);
  }
}

}  // namespace
}  // namespace attn::test
