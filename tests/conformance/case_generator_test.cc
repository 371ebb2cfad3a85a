// Are the generated cases many enough, and can each be made again from its line?
#include "tests/support/case_generator.h"

#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"

namespace attn::test {
namespace {

constexpr uint64_t kFirstSeed = 1000;
constexpr int kNumCandidates = 400;

TEST(CaseGeneratorTest, TheDefaultCasesCoverNearlyEveryPairOfFeatures) {
  const int64_t all_pairs = SelectPairwise(kFirstSeed, 20 * kNumCandidates).pairs_covered;
  const int64_t covered = SelectPairwise(kFirstSeed, kNumCandidates).pairs_covered;
  EXPECT_GT(all_pairs, 3000);
  EXPECT_GE(covered, all_pairs * 99 / 100);
}

TEST(CaseGeneratorTest, ALineMakesTheSameCaseAgain) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const AttentionCase original = RandomCase(seed);
    const absl::StatusOr<AttentionCase> again = CaseFromLine(ToLine(original));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToLine(*again), ToLine(original));
    EXPECT_EQ(again->spec.score.softmax_scale, original.spec.score.softmax_scale);
    EXPECT_EQ(again->spec.score.sink_logits, original.spec.score.sink_logits);
  }
}

TEST(CaseGeneratorTest, AMalformedLineIsRefusedByField) {
  const std::string line = ToLine(RandomCase(1));
  EXPECT_FALSE(CaseFromLine("").ok());
  EXPECT_FALSE(CaseFromLine(line + "q=x,kv=1;").ok());
}

}  // namespace
}  // namespace attn::test
