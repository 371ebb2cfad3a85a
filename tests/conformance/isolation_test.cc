// What a NaN, an infinity or a subnormal number in one place may touch, and what it may not.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/tested_backend.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kBadItem = 1;
constexpr uint32_t kBadHead = 1;  // KV head

std::vector<ItemOutput> MustRun(const Problem& problem, const Layout& layout = {}) {
  auto outputs = RunOnBackend(*TestedBackends()[1], problem, layout);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<ItemOutput>(problem.items.size());
}

// Three items, of which the middle one is spoilt: decode rows, then prefill rows.
Problem Trio(DType dtype, int32_t q_len) {
  return MakeProblem(
      BottomRightCase(NarrowedSpec(6, 3, 64, dtype), {{3, 300}, {q_len, 700}, {20, 90}}, 77));
}

enum class Where { kQuery, kKey, kValue };

std::string Trace(DType dtype, int32_t q_len, Where where, float value) {
  const char* names[] = {"q", "k", "v"};
  return absl::StrCat(NameOf(dtype), ", ", q_len, " rows, ", value, " in ",
                      names[static_cast<int>(where)]);
}

// One element of the middle item: of token or row `index`, in the bad head.
void Spoil(Problem& problem, Where where, int64_t index, float value) {
  const AttentionSpec& spec = problem.spec;
  ItemTensors& tensors = problem.tensors[kBadItem];
  const uint32_t q_head = kBadHead * spec.group_size();
  switch (where) {
    case Where::kQuery:
      SetElement(problem, tensors.q,
                 (static_cast<size_t>(index) * spec.num_q_heads + q_head) * spec.head_dim_qk + 5,
                 value);
      break;
    case Where::kKey:
      SetElement(problem, tensors.k,
                 (static_cast<size_t>(index) * spec.num_kv_heads + kBadHead) * spec.head_dim_qk + 5,
                 value);
      break;
    case Where::kValue:
      SetElement(problem, tensors.v,
                 (static_cast<size_t>(index) * spec.num_kv_heads + kBadHead) * spec.head_dim_v + 5,
                 value);
      break;
  }
}

// Bytes of the output rows and lse of one query head in one row.
std::vector<char> HeadBits(const Problem& problem, size_t item, const ItemOutput& output,
                           size_t row, size_t head) {
  const size_t at = row * problem.spec.num_q_heads + head;
  const size_t bytes = problem.spec.head_dim_v * SizeOf(problem.items[item].out_dtype);
  const auto begin = output.out.begin() + static_cast<std::ptrdiff_t>(at * bytes);
  std::vector<char> bits(begin, begin + static_cast<std::ptrdiff_t>(bytes));
  const char* lse = reinterpret_cast<const char*>(output.lse.data() + at);
  bits.insert(bits.end(), lse, lse + sizeof(float));
  return bits;
}

bool IsGroupHead(const AttentionSpec& spec, size_t head) {
  return head / spec.group_size() == kBadHead;
}

void ExpectOnlyTheGroupIsTouched(const Problem& problem, const std::vector<ItemOutput>& clean,
                                 const std::vector<ItemOutput>& spoilt) {
  EXPECT_TRUE(spoilt[0] == clean[0]);
  EXPECT_TRUE(spoilt[2] == clean[2]);
  const size_t num_rows = static_cast<size_t>(problem.items[kBadItem].q_len);
  for (size_t row = 0; row < num_rows; ++row) {
    for (size_t head = 0; head < problem.spec.num_q_heads; ++head) {
      if (IsGroupHead(problem.spec, head)) continue;
      EXPECT_EQ(HeadBits(problem, kBadItem, spoilt[kBadItem], row, head),
                HeadBits(problem, kBadItem, clean[kBadItem], row, head))
          << "row " << row << " head " << head;
    }
  }
}

TEST(IsolationTest, NanAndInfinityReachNoOtherSequenceAndNoOtherHeadGroup) {
  for (const DType dtype : TestedDTypes()) {
    for (const int32_t q_len : {4, 40}) {
      const Problem problem = Trio(dtype, q_len);
      const std::vector<ItemOutput> clean = MustRun(problem);
      for (const Where where : {Where::kQuery, Where::kKey, Where::kValue}) {
        for (const float value : {kNan, kInfinity, -kInfinity}) {
          SCOPED_TRACE(Trace(dtype, q_len, where, value));
          Problem spoilt = problem;
          Spoil(spoilt, where, where == Where::kQuery ? 1 : 650, value);
          ExpectOnlyTheGroupIsTouched(problem, clean, MustRun(spoilt));
        }
      }
    }
  }
}

TEST(IsolationTest, ANanThatARowSeesStaysVisible) {
  // pytorch/pytorch #141128: masking hid a NaN that was in a visible key.
  for (const DType dtype : TestedDTypes()) {
    for (const int32_t q_len : {4, 40}) {
      const Problem problem = Trio(dtype, q_len);
      const size_t last_row = static_cast<size_t>(q_len) - 1;
      const size_t head = kBadHead * problem.spec.group_size();
      for (const Where where : {Where::kQuery, Where::kKey, Where::kValue}) {
        SCOPED_TRACE(Trace(dtype, q_len, where, kNan));
        Problem spoilt = problem;
        Spoil(spoilt, where, where == Where::kQuery ? static_cast<int64_t>(last_row) : 123, kNan);
        const ItemOutput got = MustRun(spoilt)[kBadItem];
        const std::vector<double> out = got.OutAsDoubles(dtype);
        const size_t at = last_row * problem.spec.num_q_heads + head;
        for (uint32_t d = 0; d < problem.spec.head_dim_v; ++d) {
          const bool is_bad = where != Where::kValue || d == 5;
          EXPECT_EQ(std::isnan(out[at * problem.spec.head_dim_v + d]), is_bad) << d;
        }
        EXPECT_EQ(std::isnan(got.lse[at]), where != Where::kValue);
      }
    }
  }
}

TEST(IsolationTest, ANanQueryReachesNoOtherRowAndNoOtherHead) {
  for (const DType dtype : TestedDTypes()) {
    for (const int32_t q_len : {16, 40}) {
      const Problem problem = Trio(dtype, q_len);
      const std::vector<ItemOutput> clean = MustRun(problem);
      Problem spoilt = problem;
      Spoil(spoilt, Where::kQuery, 7, kNan);
      const ItemOutput got = MustRun(spoilt)[kBadItem];
      for (size_t row = 0; row < static_cast<size_t>(q_len); ++row) {
        for (size_t head = 0; head < problem.spec.num_q_heads; ++head) {
          if (row == 7 && head == kBadHead * problem.spec.group_size()) continue;
          EXPECT_EQ(HeadBits(problem, kBadItem, got, row, head),
                    HeadBits(problem, kBadItem, clean[kBadItem], row, head))
              << "row " << row << " head " << head;
        }
      }
    }
  }
}

TEST(IsolationTest, RowsWhoseKeyTilesDoNotHoldTheBadKeyStayClean) {
  // Causal rows up to 600 and a bad key at 1100: far beyond any tile of 256 keys they touch.
  for (const DType dtype : TestedDTypes()) {
    AttentionCase two_halves = BottomRightCase(NarrowedSpec(2, 2, 64, dtype), {{40, 1200}}, 5);
    two_halves.items[0].q_start = 560;
    const Problem problem = MakeProblem(two_halves);
    const std::vector<ItemOutput> clean = MustRun(problem);
    for (const float value : {kNan, kInfinity}) {
      Problem spoilt = problem;
      for (uint32_t head = 0; head < 2; ++head) {
        FillVector(spoilt, spoilt.tensors[0].k, 2, problem.spec.head_dim_qk, 1100, head, value);
        FillVector(spoilt, spoilt.tensors[0].v, 2, problem.spec.head_dim_v, 1100, head, value);
      }
      EXPECT_TRUE(MustRun(spoilt)[0] == clean[0]);
    }
  }
}

TEST(IsolationTest, KeysOutsideTheWindowStayHarmlessATileAway) {
  // vllm-project/vllm #29998, #26480: pages before the window held NaN and were multiplied by 0.
  for (const DType dtype : TestedDTypes()) {
    for (const int32_t q_len : {1, 64}) {
      AttentionSpec spec = NarrowedSpec(4, 2, 64, dtype);
      spec.score.window.left = 127;
      spec.score.window.right = 0;
      const Problem problem = MakeProblem(BottomRightCase(spec, {{q_len, 5000}}, 20));
      const std::vector<ItemOutput> clean = MustRun(problem);
      Problem spoilt = problem;
      const int64_t first_seen = 5000 - q_len - 127;
      const int64_t first_of_its_tile = first_seen / 256 * 256;
      for (int64_t key = 0; key < first_of_its_tile; ++key) {
        for (uint32_t head = 0; head < 2; ++head) {
          FillVector(spoilt, spoilt.tensors[0].k, 2, spec.head_dim_qk, key, head, kNan);
          FillVector(spoilt, spoilt.tensors[0].v, 2, spec.head_dim_v, key, head, kNan);
        }
      }
      EXPECT_TRUE(MustRun(spoilt)[0] == clean[0]) << q_len;
      ExpectReference(*TestedBackends()[1], problem);
    }
  }
}

TEST(IsolationTest, InfiniteLogitsEndAndTouchOnlyTheirRows) {
  for (const DType dtype : TestedDTypes()) {
    Problem problem = Trio(dtype, 40);
    const std::vector<ItemOutput> clean = MustRun(problem);
    FillTensor(problem, problem.tensors[kBadItem].q, kInfinity);
    FillTensor(problem, problem.tensors[kBadItem].k, -kInfinity);
    FillTensor(problem, problem.tensors[kBadItem].v, kInfinity);
    const std::vector<ItemOutput> got = MustRun(problem);
    EXPECT_TRUE(got[0] == clean[0]);
    EXPECT_TRUE(got[2] == clean[2]);
  }
}

TEST(IsolationTest, ALaunchAfterANanLaunchIsAsOnAFreshBackend) {
  // flashinfer-ai/flashinfer #1046: clean launches after one with NaN data were wrong.
  for (const DType dtype : TestedDTypes()) {
    const Problem clean = MakeProblem(
        BottomRightCase(NarrowedSpec(8, 2, 64, dtype), {{1, 33}, {1, 11}, {40, 600}}, 3));
    const std::vector<ItemOutput> before = MustRun(clean);
    Problem bad = clean;
    for (ItemTensors& tensors : bad.tensors) {
      FillTensor(bad, tensors.q, kNan);
      FillTensor(bad, tensors.k, kNan);
      FillTensor(bad, tensors.v, kNan);
    }
    MustRun(bad);
    const std::vector<ItemOutput> after = MustRun(clean);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i] == before[i]) << i;
  }
}

TEST(IsolationTest, SubnormalInputsAreWithinTolerance) {
  for (const DType dtype : TestedDTypes()) {
    AttentionCase tiny = BottomRightCase(NarrowedSpec(4, 2, 64, dtype), {{1, 300}, {30, 70}}, 8);
    tiny.values = Values::kTiny;
    ExpectReference(*TestedBackends()[1], MakeProblem(tiny));
    for (CaseItem& item : tiny.items) item.out_dtype = DType::kFloat32;
    ExpectReference(*TestedBackends()[1], MakeProblem(tiny));
  }
}

}  // namespace
}  // namespace attn::test
