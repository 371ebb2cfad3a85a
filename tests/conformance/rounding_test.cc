// How new keys and values become those of a narrower cache, on the backend that has one.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(RoundingTest, HalfPrecisionOverflowOnAppendBecomesInfinity) {
  AttentionSpec spec = SpecOf(2, 1, 16, DType::kFloat32);
  spec.kv_dtype = DType::kFloat16;
  Problem problem = MakeProblem(BottomRightCase(spec, {{1, 5}}, 9));
  FillVector(problem, problem.tensors[0].v, 1, 16, 2, 0, 70000.0f);
  SetElement(problem, problem.tensors[0].v, 2 * 16 + 3, -65520.0f);
  SetElement(problem, problem.tensors[0].v, 2 * 16 + 4, 65519.0f);
  const std::vector<ItemOutput> got = RunOnBackend(CpuBackendOf(2), problem, {}).value();
  const std::vector<double> out = got[0].OutAsDoubles(DType::kFloat32);
  EXPECT_EQ(out[0], kInfinity);
  EXPECT_EQ(out[3], -kInfinity);
  EXPECT_TRUE(std::isfinite(out[4]));
  EXPECT_TRUE(IsWithinTolerance(problem, 0, ExpectedOf(problem, 0), got[0]));
}

TEST(RoundingTest, KeysAndValuesAreRoundedOnceToTheCacheDtypeForTheAppendingRowsToo) {
  for (const DType kv_dtype : {DType::kBFloat16, DType::kFloat16}) {
    AttentionSpec spec = SpecOf(1, 1, 8, DType::kFloat32);
    spec.kv_dtype = kv_dtype;
    Problem problem = MakeProblem(BottomRightCase(spec, {{1, 1}}, 9));
    FillTensor(problem, problem.tensors[0].v, 1.0009f);  // between two values of either type
    const std::vector<double> out =
        RunOnBackend(CpuBackendOf(2), problem, {}).value()[0].OutAsDoubles(DType::kFloat32);
    for (const double value : out) EXPECT_EQ(value, RoundTo(kv_dtype, 1.0009f));
  }
}

}  // namespace
}  // namespace attn::test
