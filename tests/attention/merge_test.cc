// Do parts of a key range, computed apart without sinks and merged by their lse, make the whole?
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The whole over all keys, and its parts: the same rows over consecutive ranges of keys. Keys of a
// part begin at position 0 of a sequence of their own, so the rows' positions move with them.
struct SplitProblem {
  Problem whole;  // one item
  Problem parts;
};

SplitProblem Split(const AttentionCase& whole_case, const std::vector<int32_t>& part_lens) {
  SplitProblem split;
  split.whole = MakeProblem(whole_case);
  const AttentionSpec& spec = split.whole.spec;
  const CaseItem& item = split.whole.items[0];
  const ItemTensors& tensors = split.whole.tensors[0];
  split.parts.spec = spec;
  const size_t token_bytes = spec.num_kv_heads * SizeOf(spec.activation_dtype);
  int32_t begin = 0;
  for (const int32_t length : part_lens) {
    CaseItem part = item;
    part.kv_len = length;
    part.q_start = item.q_start - begin;
    part.use_sinks = false;
    part.out_dtype = DType::kFloat32;
    part.wants_lse = true;
    const auto slice = [&](const std::vector<char>& from, uint32_t dim) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(begin) *
                                                                    token_bytes * dim);
      return std::vector<char>(first, first + static_cast<std::ptrdiff_t>(
                                                  static_cast<size_t>(length) * token_bytes * dim));
    };
    split.parts.items.push_back(part);
    split.parts.tensors.push_back(
        {tensors.q, slice(tensors.k, spec.head_dim_qk), slice(tensors.v, spec.head_dim_v)});
    begin += length;
  }
  EXPECT_EQ(begin, item.kv_len);
  return split;
}

// Row `at` (row × query heads + head) of the merged result goes to out [head_dim_v]; returns lse.
double MergeRow(const AttentionSpec& spec, uint32_t layer, size_t at,
                const std::vector<ItemOutput>& parts, float* out) {
  const size_t head = at % spec.num_q_heads;
  const uint32_t num_sinks = spec.score.sink_logits_per_head;
  const float* sinks =
      spec.score.sink_logits.data() + (size_t{layer} * spec.num_q_heads + head) * num_sinks;
  double maximum = kMinusInfinity;
  for (uint32_t i = 0; i < num_sinks; ++i) maximum = std::max<double>(maximum, sinks[i]);
  for (const ItemOutput& part : parts) maximum = std::max<double>(maximum, part.lse[at]);
  std::fill_n(out, spec.head_dim_v, 0.0f);
  if (maximum == kMinusInfinity) return maximum;
  double denominator = 0;
  for (uint32_t i = 0; i < num_sinks; ++i) denominator += std::exp(sinks[i] - maximum);
  std::vector<double> sum(spec.head_dim_v, 0.0);
  for (const ItemOutput& part : parts) {
    if (part.lse[at] == kMinusInfinity) continue;
    const double weight = std::exp(part.lse[at] - maximum);
    denominator += weight;
    for (size_t d = 0; d < sum.size(); ++d) {
      sum[d] += weight * LoadAsFloat(DType::kFloat32, part.out.data(),
                                     static_cast<int64_t>(at * sum.size() + d));
    }
  }
  for (size_t d = 0; d < sum.size(); ++d) out[d] = static_cast<float>(sum[d] / denominator);
  return maximum + std::log(denominator);
}

ItemOutput Merge(const Problem& whole, const std::vector<ItemOutput>& parts) {
  ItemOutput merged;
  const size_t dim_v = whole.spec.head_dim_v;
  std::vector<float> out(dim_v);
  for (size_t at = 0; at < whole.LseElements(0); ++at) {
    merged.lse.push_back(
        static_cast<float>(MergeRow(whole.spec, whole.items[0].layer, at, parts, out.data())));
    const char* bytes = reinterpret_cast<const char*>(out.data());
    merged.out.insert(merged.out.end(), bytes, bytes + dim_v * sizeof(float));
  }
  return merged;
}

// Whole by the backend = merge of parts by the backend = reference.
void ExpectPartsMakeTheWhole(AttentionCase whole_case, const std::vector<int32_t>& part_lens) {
  SCOPED_TRACE(ToLine(whole_case));
  whole_case.items[0].out_dtype = DType::kFloat32;
  const SplitProblem split = Split(whole_case, part_lens);
  ExpectReference(CpuBackendOf(2), split.whole);
  const auto parts = RunOnBackend(CpuBackendOf(2), split.parts, {});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_TRUE(
      IsWithinTolerance(split.whole, 0, ExpectedOf(split.whole, 0), Merge(split.whole, *parts)));
}

TEST(MergeTest, TwoUnevenPartsMakeTheWhole) {
  // flashinfer-ai/flashinfer #2113, #4485: lse in base 2 made merges 12 % wrong (3072 + 64 keys).
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    ExpectPartsMakeTheWhole(BottomRightCase(SpecOf(8, 2, 64, dtype), {{1, 3136}}, 1), {3072, 64});
    ExpectPartsMakeTheWhole(BottomRightCase(SpecOf(8, 2, 64, dtype), {{20, 600}}, 2), {555, 45});
  }
}

TEST(MergeTest, SinksAreAddedOnceByTheMerge) {
  // ROCm/rocm-libraries #12227, vllm-project/vllm PR 57711: each part of a cascade added the sink.
  for (const uint32_t sinks : {1u, 4u, 17u}) {
    AttentionSpec spec = SpecOf(6, 2, 64);
    spec.num_layers = 2;
    spec.score.sink_logits_per_head = sinks;
    AttentionCase whole = BottomRightCase(spec, {{5, 700}}, sinks);
    whole.items[0].layer = 1;
    ExpectPartsMakeTheWhole(whole, {100, 256, 344});
  }
}

TEST(MergeTest, PartsThatARowDoesNotSeeHaveNoWeight) {
  // vllm-project/vllm PR 28181: both sides empty, -inf minus -inf.
  AttentionSpec spec = SpecOf(2, 1, 64);
  spec.score.window.left = 3;
  spec.score.window.right = 0;
  ExpectPartsMakeTheWhole(BottomRightCase(spec, {{30, 300}}, 4), {150, 100, 30, 20});
  AttentionCase nothing_visible = BottomRightCase(spec, {{4, 300}}, 5);
  nothing_visible.items[0].q_start = 900;
  ExpectPartsMakeTheWhole(nothing_visible, {150, 150});
}

TEST(MergeTest, AnEmptyPartChangesNothing) {
  ExpectPartsMakeTheWhole(BottomRightCase(SpecOf(4, 2, 32), {{3, 100}}, 6), {0, 100, 0});
}

TEST(MergeTest, ManyPartsMakeTheWhole) {
  // Dao-AILab/flash-attention #1647: the answer depended on the number of splits.
  for (const int32_t num_parts : {2, 8, 16, 64}) {
    ExpectPartsMakeTheWhole(BottomRightCase(SpecOf(4, 1, 64), {{1, 4096}}, 7),
                            std::vector<int32_t>(static_cast<size_t>(num_parts), 4096 / num_parts));
  }
}

TEST(MergeTest, PartsWhoseScoresLieFarApartMerge) {
  // vllm-project/vllm PR 28181 and flashinfer-ai/flashinfer #4267 together: scores near ±6e4.
  for (const bool low_first : {true, false}) {
    AttentionCase whole = BottomRightCase(SpecOf(1, 1, 64), {{1, 200}}, 8);
    whole.spec.score.softmax_scale = 0.125f;
    SplitProblem split = Split(whole, {120, 80});
    for (Problem* problem : {&split.whole, &split.parts}) {
      FillTensor(*problem, problem->tensors[0].q, 32.0f);
    }
    FillTensor(split.parts, split.parts.tensors[1].q, 32.0f);
    for (int64_t key = 0; key < 200; ++key) {  // 0.125 · 64 · 32 · 234.375 = 6e4
      const float value = (key < 120) == low_first ? -234.375f : 234.375f;
      FillVector(split.whole, split.whole.tensors[0].k, 1, 64, key, 0, value);
      FillVector(split.parts, split.parts.tensors[key < 120 ? 0 : 1].k, 1, 64, key % 120, 0, value);
    }
    ExpectReference(CpuBackendOf(1), split.whole);
    const auto parts = RunOnBackend(CpuBackendOf(1), split.parts, {});
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_NEAR((*parts)[0].lse[0], low_first ? -60000 : 60000, 10);
    EXPECT_TRUE(
        IsWithinTolerance(split.whole, 0, ExpectedOf(split.whole, 0), Merge(split.whole, *parts)));
  }
}

TEST(MergeTest, ACascadeOverASharedPrefixMakesEachWhole) {
  // vllm-project/vllm #22103: B = 5 sharing 2048 keys, suffixes of mixed lengths.
  for (const int32_t suffix : {1, 16, 40, 333, 512}) {
    ExpectPartsMakeTheWhole(
        BottomRightCase(SpecOf(8, 2, 64), {{1, 2048 + suffix}}, static_cast<uint64_t>(suffix)),
        {2048, suffix});
  }
}

TEST(MergeTest, WideKeysInChunksMakeTheWhole) {
  // vllm-project/vllm #26042: Dqk 192, Dv 128, context in chunks.
  AttentionSpec spec = SpecOf(2, 1, 192);
  spec.head_dim_v = 128;
  ExpectPartsMakeTheWhole(BottomRightCase(spec, {{30, 2500}}, 9), {1024, 1024, 452});
}

}  // namespace
}  // namespace attn::test
