// Public failures of other kernels: causal alignment, chunked prefill and sliding windows. Each
// test names the reports it follows.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"

namespace attn::test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

AttentionSpec WithWindow(AttentionSpec spec, std::optional<uint32_t> left,
                         std::optional<uint32_t> right) {
  spec.score.window.left = left;
  spec.score.window.right = right;
  return spec;
}

AttentionCase NotCausal(AttentionCase attention_case) {
  for (CaseItem& item : attention_case.items) item.causal = false;
  return attention_case;
}

std::vector<ItemOutput> MustRun(const Problem& problem) {
  auto outputs = RunOnBackend(CpuBackendOf(2), problem, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<ItemOutput>(problem.items.size());
}

// All queries zero, so that every visible key weighs the same.
Problem WithZeroQueries(const AttentionCase& attention_case) {
  Problem problem = MakeProblem(attention_case);
  for (ItemTensors& tensors : problem.tensors) FillTensor(problem, tensors.q, 0.0f);
  return problem;
}

TEST(ChunkTest, LaterRowsOfAChunkDoNotChangeItsFirst) {
  // tenstorrent/tt-metal #48899: histories of 64 and more.
  for (const int32_t history : {0, 1, 15, 16, 63, 64, 65, 127, 128, 130}) {
    AttentionCase chunk = BottomRightCase(SpecOf(4, 2, 64), {{5, history + 5}}, 1);
    ExpectReference(chunk);
    const Problem problem = MakeProblem(chunk);
    Problem changed = problem;
    for (int64_t row = 1; row < 5; ++row) {
      for (uint32_t head = 0; head < 4; ++head) {
        FillVector(changed, changed.tensors[0].q, 4, 64, row, head, 3.0f);
      }
    }
    const auto before = MustRun(problem)[0].OutAsDoubles(DType::kFloat32);
    const auto after = MustRun(changed)[0].OutAsDoubles(DType::kFloat32);
    for (size_t i = 0; i < 4 * 64; ++i) ASSERT_EQ(before[i], after[i]) << history;
  }
}

TEST(ChunkTest, EveryRequestHasItsOwnHistory) {
  // tenstorrent/tt-xla PR 5817; flashinfer-ai/flashinfer PR 3784, PR 2414.
  ExpectReference(BottomRightCase(SpecOf(2, 1, 64), {{7, 7}, {7, 24}, {7, 4103}, {7, 8}}, 2));
  ExpectReference(BottomRightCase(SpecOf(4, 2, 64),
                                  {{3, 9}, {20, 77}, {1, 500}, {64, 64}, {5, 6}, {17, 300}}, 3));
}

TEST(ChunkTest, AWindowOverAllKeysIsCausal) {
  // Dao-AILab/flash-attention #1133. Bits, since the visible keys are the same.
  for (const int32_t length : {1, 127, 128, 129, 600}) {
    for (const uint32_t dim : {64u, 128u}) {
      const AttentionSpec spec = SpecOf(1, 1, dim);
      const AttentionCase causal = BottomRightCase(spec, {{length, length}}, 4);
      ExpectReference(causal);
      const ItemOutput want = MustRun(MakeProblem(causal))[0];
      for (const uint32_t left : {static_cast<uint32_t>(length - 1), 4294967295u}) {
        AttentionCase windowed = causal;
        windowed.spec = WithWindow(spec, left, 0);
        EXPECT_TRUE(MustRun(MakeProblem(windowed))[0] == want) << length;
        EXPECT_TRUE(MustRun(MakeProblem(NotCausal(windowed)))[0] == want) << length;
      }
    }
  }
}

TEST(ChunkTest, QueriesOfCrossAttentionStartAtTheirOwnOffset) {
  // NVIDIA/TensorRT-LLM #10102.
  for (const uint32_t dim : {32u, 64u}) {
    ExpectReference(
        NotCausal(BottomRightCase(SpecOf(2, 2, dim), {{64, 128}, {10, 5}, {33, 400}}, 5)));
  }
}

TEST(ChunkTest, PaddingOfTilesAndPagesHasNoWeight) {
  // flashinfer-ai/flashinfer #3716, PR 3717; tenstorrent/tt-metal PR 38004.
  for (const int32_t kv_len : {1, 15, 16, 17, 33, 100, 255, 257, 511, 1000}) {
    for (const uint32_t page_size : {1u, 2u, 4u, 8u, 16u}) {
      for (const int32_t q_len : {1, 64}) {
        AttentionSpec spec = SpecOf(1, 1, 8);
        spec.page_size = page_size;
        const Problem problem =
            WithZeroQueries(NotCausal(BottomRightCase(spec, {{q_len, kv_len}}, 6)));
        ExpectReference(CpuBackendOf(2), problem);
        const ItemOutput got = MustRun(problem)[0];
        for (const float lse : got.lse) {
          ASSERT_NEAR(lse, std::log(kv_len), 1e-5) << kv_len;
        }
      }
    }
  }
}

TEST(ChunkTest, ASuffixOverACachedPrefixIsTheSameEveryTime) {
  // mapika/decider v1.0.2: a wrong finite result that differed between identical requests.
  const Problem problem = MakeProblem(BottomRightCase(SpecOf(4, 2, 64), {{37, 549}}, 7));
  ExpectReference(problem);
  const ItemOutput want = MustRun(problem)[0];
  for (int i = 0; i < 50; ++i) {
    MustRun(MakeProblem(
        BottomRightCase(SpecOf(2, 1, 32), {{i + 1, 100 + i}}, static_cast<uint64_t>(i))));
    ASSERT_TRUE(MustRun(problem)[0] == want) << i;
  }
}

TEST(WindowTest, AModelsWindowOfWTokensIsLeftWMinusOne) {
  // vllm-project/vllm #3385; huggingface/transformers #29623; facebookresearch/xformers #923.
  for (const auto& [window, kv_len] : std::vector<Lengths>{{4, 10}, {2048, 4096}}) {
    const AttentionSpec spec = WithWindow(SpecOf(1, 1, 8), static_cast<uint32_t>(window) - 1, 0);
    Problem problem = WithZeroQueries(BottomRightCase(spec, {{1, kv_len}}, 8));
    FillTensor(problem, problem.tensors[0].v, 0.0f);
    for (int32_t key = kv_len - window; key < kv_len; ++key) {
      FillVector(problem, problem.tensors[0].v, 1, 8, key, 0, 1.0f);
    }
    const ItemOutput got = MustRun(problem)[0];
    EXPECT_NEAR(got.OutAsDoubles(DType::kFloat32)[0], 1.0, 1e-6) << "keys before the window";
    EXPECT_NEAR(got.lse[0], std::log(window), 1e-5) << "number of keys";
  }
}

TEST(WindowTest, EachRowOfAChunkHasItsOwnWindow) {
  // openvinotoolkit/openvino PR 30714: row i had the window of i ± 1.
  for (int32_t key = 50; key < 64; ++key) {
    const AttentionSpec spec = WithWindow(SpecOf(1, 1, 8), 7, 0);
    Problem problem = WithZeroQueries(BottomRightCase(spec, {{5, 64}}, 9));
    FillTensor(problem, problem.tensors[0].v, 0.0f);
    FillVector(problem, problem.tensors[0].v, 1, 8, key, 0, 8.0f);
    const std::vector<double> out = MustRun(problem)[0].OutAsDoubles(DType::kFloat32);
    for (int32_t row = 0; row < 5; ++row) {
      const int32_t position = 59 + row;
      const bool is_visible = key >= position - 7 && key <= position;
      EXPECT_NEAR(out[static_cast<size_t>(row) * 8], is_visible ? 1.0 : 0.0, 1e-6) << key;
    }
  }
}

TEST(WindowTest, KeysOutsideTheWindowChangeNoBitOnAnyPath) {
  // EricLBuehler/mistral.rs #2094; sgl-project/sglang PR 26516, PR 38756: window 512 ignored.
  for (const DType dtype : kDTypes) {
    for (const int32_t q_len : {1, 9, 40}) {
      const AttentionSpec spec = WithWindow(SpecOf(2, 1, 32, dtype), 511, 0);
      const Problem problem = MakeProblem(BottomRightCase(spec, {{q_len, 2000}}, 10));
      ExpectReference(CpuBackendOf(2), problem);
      Problem changed = problem;
      for (int64_t key = 0; key < 2000 - q_len - 511; ++key) {
        FillVector(changed, changed.tensors[0].k, 1, 32, key, 0, 9.0f);
        FillVector(changed, changed.tensors[0].v, 1, 32, key, 0, 9.0f);
      }
      EXPECT_TRUE(MustRun(changed)[0] == MustRun(problem)[0]) << q_len;
    }
  }
}

TEST(WindowTest, WindowAndCapHoldWithoutACachedPrefix) {
  // sgl-project/sglang #33915, PR 34093.
  AttentionSpec spec = WithWindow(SpecOf(2, 1, 64), 63, 0);
  spec.score.logit_soft_cap = 30.0f;
  ExpectReference(BottomRightCase(spec, {{300, 300}}, 11));
}

TEST(WindowTest, ShortRequestsKeepTheirNewestKeysBesideLongOnes) {
  // openvinotoolkit/openvino PR 38034: partitions counted from the longest request only.
  const AttentionSpec spec = WithWindow(SpecOf(2, 1, 32), 63, 0);
  const std::vector<Lengths> items = {{1, 1024}, {1, 1003}, {1, 77}, {1, 80}};
  ExpectReference(BottomRightCase(spec, items, 12));
  const Problem problem = MakeProblem(BottomRightCase(spec, items, 12));
  Problem changed = problem;
  for (size_t i = 0; i < items.size(); ++i) {
    FillVector(changed, changed.tensors[i].v, 1, 32, items[i].kv_len - 1, 0, 50.0f);
  }
  const std::vector<ItemOutput> before = MustRun(problem);
  const std::vector<ItemOutput> after = MustRun(changed);
  for (size_t i = 0; i < items.size(); ++i) EXPECT_FALSE(before[i] == after[i]) << i;
}

TEST(WindowTest, RowsAreZeroExactlyWhereTheirWindowIsEmpty) {
  // Dao-AILab/flash-attention #2199.
  const std::pair<uint32_t, uint32_t> windows[] = {{32, 64}, {0, 0}, {1, 0}, {128, 0}, {129, 0}};
  for (const auto& [left, right] : windows) {
    for (const uint32_t dim : {64u, 256u}) {
      const AttentionSpec spec = WithWindow(SpecOf(1, 1, dim), left, right);
      const AttentionCase lengths = BottomRightCase(spec, {{129, 64}, {129, 129}, {129, 200}}, 13);
      ExpectReference(lengths);
      ExpectReference(NotCausal(lengths));
    }
  }
}

TEST(WindowTest, TheDiagonalAloneGivesEachRowItsOwnValue) {
  const AttentionSpec spec = WithWindow(SpecOf(1, 1, 64), 0, 0);
  const Problem problem = MakeProblem(NotCausal(BottomRightCase(spec, {{129, 129}}, 14)));
  const std::vector<double> out = MustRun(problem)[0].OutAsDoubles(DType::kFloat32);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i],
              LoadAsFloat(DType::kFloat32, problem.tensors[0].v.data(), static_cast<int64_t>(i)));
  }
}

TEST(WindowTest, ATwoSidedWindowOverLongKeysHolds) {
  // NVIDIA/cudnn-frontend: non-causal, more than 1024 keys, window (cuDNN 9.14.0 refused).
  ExpectReference(
      NotCausal(BottomRightCase(WithWindow(SpecOf(1, 1, 32), 100, 50), {{1500, 1500}}, 15)));
  ExpectReference(
      NotCausal(BottomRightCase(WithWindow(SpecOf(1, 1, 32), 0, 200), {{1500, 1500}}, 16)));
}

TEST(WindowTest, LaunchesOfTwoLayerGroupsDoNotMixTheirWindows) {
  // sgl-project/sglang PR 32062; vllm-project/vllm #41651: the last plan won.
  const Problem full = MakeProblem(BottomRightCase(SpecOf(48, 8, 32), {{1, 1200}}, 17));
  const Problem windowed =
      MakeProblem(BottomRightCase(WithWindow(SpecOf(72, 8, 32), 511, 0), {{1, 1200}}, 18));
  for (int round = 0; round < 2; ++round) {
    ExpectReference(CpuBackendOf(2), full);
    ExpectReference(CpuBackendOf(2), windowed);
  }
}

TEST(WindowTest, YoungRequestsHaveNoMoreKeysThanTheyHave) {
  // vllm-project/vllm PR 41757: all requests were given the full window length.
  ExpectReference(BottomRightCase(WithWindow(SpecOf(4, 2, 64), 127, 0),
                                  {{1, 1}, {1, 5}, {1, 127}, {1, 128}, {1, 129}, {1, 4000}}, 19));
}

TEST(WindowTest, PositionsFarOutsideTheKeysDoNotOverflow) {
  for (const std::optional<uint32_t> side : {std::optional<uint32_t>(), std::optional<uint32_t>(0),
                                             std::optional<uint32_t>(4294967295u)}) {
    for (const int64_t q_start : {int64_t{1} << 31, -(int64_t{1} << 31), (int64_t{1} << 32) - 2,
                                  int64_t{1} << 59, -(int64_t{1} << 59), int64_t{2147483640}}) {
      for (const int32_t q_len : {3, 20}) {
        AttentionCase far =
            BottomRightCase(WithWindow(SpecOf(2, 1, 16), side, side), {{q_len, 40}}, 20);
        far.items[0].q_start = q_start;
        ExpectReference(far);
        ExpectReference(NotCausal(far));
      }
    }
  }
}

}  // namespace
}  // namespace attn::test
