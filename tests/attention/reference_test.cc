// Is the judge right? Against values worked out by hand, and the single row against the whole.
#include "attention/reference/reference_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/case_generator.h"
#include "tests/support/expect_reference.h"

namespace attn::test {
namespace {

// One head of dimension 8, q = (1, 0, …); key j is (logits[j], 0, …), value j is (j + 1) times one.
reference::Result AttendByLogits(const AttentionSpec& spec, const reference::Item& item,
                                 const std::vector<float>& logits) {
  std::vector<float> q(static_cast<size_t>(item.q_len) * 8, 0.0f);
  for (size_t i = 0; i < q.size(); i += 8) q[i] = 1.0f;
  std::vector<float> k(logits.size() * 8, 0.0f);
  std::vector<float> v(logits.size() * 8);
  for (size_t j = 0; j < logits.size(); ++j) {
    k[j * 8] = logits[j];
    for (size_t d = 0; d < 8; ++d) v[j * 8 + d] = static_cast<float>(j + 1);
  }
  return reference::Attend(spec, item, q.data(), k.data(), v.data());
}

AttentionSpec UnitSpec() {
  AttentionSpec spec = SpecOf(1, 1, 8);
  spec.score.softmax_scale = 1.0f;
  return spec;
}

TEST(ReferenceTest, TwoKeysAreWeighedByTheirExponentials) {
  const float log_three = std::log(3.0f);
  const auto result =
      AttendByLogits(UnitSpec(), {.q_start = 1, .q_len = 1, .kv_len = 2}, {0.0f, log_three});
  EXPECT_NEAR(result.out[0], (1.0 * 1 + 3.0 * 2) / 4, 1e-7);
  EXPECT_NEAR(result.lse[0], std::log(4.0), 1e-7);
}

TEST(ReferenceTest, ScaleComesBeforeTheCapAndTheSinkIsRaw) {
  AttentionSpec spec = UnitSpec();
  spec.score.softmax_scale = -2.0f;
  spec.score.logit_soft_cap = 0.5f;
  spec.score.sink_logits_per_head = 1;
  spec.score.sink_logits = {0.75f};
  const auto result = AttendByLogits(spec, {.q_start = 0, .q_len = 1, .kv_len = 1}, {1.5f});
  const double weight = std::exp(0.5 * std::tanh(-2.0 * 1.5 / 0.5));
  const double sink = std::exp(0.75);
  EXPECT_NEAR(result.out[0], weight / (weight + sink), 1e-9);
  EXPECT_NEAR(result.lse[0], std::log(weight + sink), 1e-9);
}

TEST(ReferenceTest, RowsSeeTheKeysThatTheirPositionAllows) {
  AttentionSpec spec = UnitSpec();
  spec.score.window.left = 2;
  spec.score.window.right = 1;
  for (const bool causal : {false, true}) {
    for (int64_t position = -3; position < 14; ++position) {
      double sum = 0;
      double count = 0;
      for (int64_t j = 0; j < 10; ++j) {
        const bool is_visible = j >= position - 2 && j <= position + (causal ? 0 : 1);
        EXPECT_EQ(reference::IsVisible(spec.score, causal, position, j), is_visible);
        if (is_visible) sum += static_cast<double>(j + 1), count += 1;
      }
      const auto result =
          AttendByLogits(spec, {.q_start = position, .q_len = 1, .kv_len = 10, .causal = causal},
                         std::vector<float>(10, 0.0f));
      if (count == 0) {
        EXPECT_EQ(result.out[0], 0);
        EXPECT_EQ(result.lse[0], -std::numeric_limits<double>::infinity());
      } else {
        EXPECT_NEAR(result.out[0], sum / count, 1e-12);
        EXPECT_NEAR(result.lse[0], std::log(count), 1e-12);
      }
    }
  }
}

TEST(ReferenceTest, ARowThatSeesOnlySinksIsZeroWithTheirLse) {
  AttentionSpec spec = UnitSpec();
  spec.score.sink_logits_per_head = 2;
  spec.score.sink_logits = {1.0f, 2.0f};
  const auto result = AttendByLogits(spec, {.q_start = -1, .q_len = 1, .kv_len = 1}, {5.0f});
  EXPECT_EQ(result.out[0], 0);
  EXPECT_NEAR(result.lse[0], std::log(std::exp(1.0) + std::exp(2.0)), 1e-12);
}

TEST(ReferenceTest, HugeLogitsUnderACapGiveTheCap) {
  AttentionSpec spec = UnitSpec();
  spec.score.logit_soft_cap = 2.0f;
  const auto result =
      AttendByLogits(spec, {.q_start = 1, .q_len = 1, .kv_len = 2}, {1e30f, -1e30f});
  EXPECT_NEAR(result.lse[0], std::log(std::exp(2.0) + std::exp(-2.0)), 1e-12);
}

TEST(ReferenceTest, ASingleRowIsTheRowOfTheWhole) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const AttentionCase attention_case = RandomCase(seed);
    const Problem problem = MakeProblem(attention_case);
    const AttentionSpec& spec = problem.spec;
    for (size_t i = 0; i < problem.items.size(); ++i) {
      if (problem.items[i].q_len == 0) continue;
      const reference::Item item = problem.items[i].AsReferenceItem();
      const ItemTensors& tensors = problem.tensors[i];
      const reference::Result whole =
          reference::Attend(spec, item, tensors.q.data(), tensors.k.data(), tensors.v.data());
      const uint32_t head = static_cast<uint32_t>(seed % spec.num_q_heads);
      const int32_t row = item.q_len / 2;
      const size_t at = static_cast<size_t>(row) * spec.num_q_heads + head;
      std::vector<double> out(spec.head_dim_v);
      const double lse = reference::ReferenceRow(
          spec, {item.layer, head, item.q_start + row, item.kv_len, item.causal, item.use_sinks},
          tensors.q.data() + at * spec.head_dim_qk * SizeOf(spec.activation_dtype),
          tensors.k.data(), tensors.v.data(), out.data());
      EXPECT_EQ(lse, whole.lse[at]) << ToLine(attention_case);
      for (size_t d = 0; d < out.size(); ++d) {
        EXPECT_EQ(out[d], whole.out[at * out.size() + d]) << ToLine(attention_case);
      }
    }
  }
}

}  // namespace
}  // namespace attn::test
