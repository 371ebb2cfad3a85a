// Is every instruction set that the kernels are compiled for, and that this machine has, right?
// Users met faults that only one of them showed (ikawrakow/ik_llama.cpp #363, ggml-org/llama.cpp
// #23044); the other tests run on the best one only.
#include "attention/cpu/targets.h"

#include <memory>
#include <string>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "tests/support/attention_case.h"
#include "tests/support/case_generator.h"
#include "tests/support/expect_reference.h"

namespace attn::test {
namespace {

constexpr uint64_t kFirstSeed = 50'000;
constexpr uint64_t kNumCases = 80;

// Lets dispatch see one target only, until destroyed. The whole process is affected.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

class TargetsTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(TargetsTest, GivesTheReferencesAnswers) {
  const OnlyTarget only(GetParam());
  const std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 2}).value();
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kNumCases; ++seed) {
    const AttentionCase attention_case = RandomCase(seed);
    SCOPED_TRACE(ToLine(attention_case));
    ExpectReference(*backend, MakeProblem(attention_case), {.page_seed = seed});
  }
}

INSTANTIATE_TEST_SUITE_P(Supported, TargetsTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

TEST(TargetChoiceTest, TheBestTargetIsTakenAndNamed) {
  std::vector<std::string> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    names.push_back(CreateCpuBackend({.num_threads = 1}).value()->device_name());
  }
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(CreateCpuBackend({.num_threads = 1}).value()->device_name(), names.front());
  for (size_t i = 1; i < names.size(); ++i) EXPECT_NE(names[i], names[0]);
}

}  // namespace
}  // namespace attn::test
