// Does a backend, for every combination of what a spec and a batch may say, either give the
// reference's answer or refuse by naming a field?
//
//   conformance_test --case='seed=… items=…'   runs that line alone
//   conformance_test --sweep=5000              adds so many fresh random cases
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/case_generator.h"
#include "tests/support/paged_run.h"
#include "tests/support/random.h"
#include "tests/support/tested_backend.h"
#include "tests/support/tolerance.h"

namespace attn::test {

void PrintTo(const AttentionCase& attention_case, std::ostream* stream) {
  *stream << ToLine(attention_case);
}

namespace {

constexpr uint64_t kFirstSeed = 1000;
constexpr int kNumCandidates = 400;

std::string case_line;  // of --case
int sweep_size = 0;     // of --sweep

// Another way to lay out and cut the same work for each case and each of the tested backends.
Layout LayoutFor(const AttentionCase& attention_case, size_t backend) {
  Random random(attention_case.seed * 4 + backend + 1);
  Layout layout;
  layout.page_seed = random.Next();
  layout.table_chunk_log2 = random.OneOf({0, 1, 3, 9, 31});
  layout.append_piece = random.OneOf({0, 0, 1, 7, 16, 100});
  layout.appends_in_same_launch = random.Chance(0.5);
  layout.cut_rows = random.Chance(0.3) ? TestedBackends()[backend]->prefill_cut_rows() : 0;
  layout.cut_kv_heads = random.Chance(0.3);
  layout.reversed = random.Chance(0.5);
  layout.is_misaligned = random.Chance(0.3);
  return layout;
}

void ExpectRefusal(const absl::Status& refusal, const AttentionCase& attention_case) {
  EXPECT_EQ(ReasonOf(refusal), Reason::kUnsupported) << refusal;
  EXPECT_NE(FieldOf(refusal), "") << refusal;
  const absl::Status store =
      TestedBackends()[0]->CreateKvStore(attention_case.spec, {.num_pages = 1}).status();
  EXPECT_EQ(FieldOf(store), FieldOf(refusal)) << store;
}

void ExpectConforms(const AttentionCase& attention_case) {
  const absl::Status supported = TestedBackends()[0]->Supports(attention_case.spec);
  if (!supported.ok()) {
    ExpectRefusal(supported, attention_case);
    return;
  }
  const Problem problem = MakeProblem(attention_case);
  std::vector<Expected> expected;
  for (size_t i = 0; i < problem.items.size(); ++i) expected.push_back(ExpectedOf(problem, i));
  for (size_t n = 0; n < TestedBackends().size(); ++n) {
    const auto outputs = RunOnBackend(*TestedBackends()[n], problem, LayoutFor(attention_case, n));
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(IsWithinTolerance(problem, i, expected[i], (*outputs)[i]))
          << "tested backend " << n << ", replay with\n--case='" << ToLine(attention_case) << "'";
    }
  }
}

class PairwiseConformanceTest : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(PairwiseConformanceTest, MatchesTheReferenceOrRefuses) { ExpectConforms(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Cases, PairwiseConformanceTest,
    ::testing::ValuesIn(SelectPairwise(kFirstSeed, kNumCandidates, Narrow).cases),
    [](const auto& test) { return absl::StrCat("Seed", test.param.seed); });

TEST(BackendConformanceTest, EveryGeneratedSpecIsComputed) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const AttentionCase random = RandomCase(seed, Narrow);
    const absl::Status supported = TestedBackends()[0]->Supports(random.spec);
    EXPECT_TRUE(supported.ok()) << supported << "\n" << ToLine(random);
  }
}

// Of the specs of any backend most are refused by one that computes few.
TEST(BackendConformanceTest, SpecsThatWereNotNarrowedAreComputedOrRefusedByField) {
  for (uint64_t seed = 0; seed < 40; ++seed) ExpectConforms(RandomCase(seed));
}

TEST(BackendConformanceTest, FreshRandomCasesConform) {
  // A few on every run, so that no two runs of CI look at the same cases only.
  const int num_cases = sweep_size > 0 ? sweep_size : 30;
  const uint64_t first_seed =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  for (int i = 0; i < num_cases; ++i) {
    ExpectConforms(RandomCase(first_seed + static_cast<uint64_t>(i), Narrow));
    if (HasFailure()) return;
  }
}

int RunOneCase() {
  const absl::StatusOr<AttentionCase> given = CaseFromLine(case_line);
  if (!given.ok()) {
    std::fprintf(stderr, "%s\n", given.status().ToString().c_str());
    return 2;
  }
  class OneCase : public ::testing::Test {
   public:
    explicit OneCase(AttentionCase attention_case) : case_(std::move(attention_case)) {}
    void TestBody() override { ExpectConforms(case_); }

   private:
    AttentionCase case_;
  };
  ::testing::RegisterTest("OneCase", "Conforms", nullptr, nullptr, __FILE__, __LINE__,
                          [given = *given]() -> ::testing::Test* { return new OneCase(given); });
  ::testing::GTEST_FLAG(filter) = "OneCase.*";
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace attn::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--case=")) {
      attn::test::case_line = std::string(argument);
    } else if (!absl::ConsumePrefix(&argument, "--sweep=") ||
               !absl::SimpleAtoi(argument, &attn::test::sweep_size)) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  return attn::test::case_line.empty() ? RUN_ALL_TESTS() : attn::test::RunOneCase();
}
