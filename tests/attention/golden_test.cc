// Every golden case: 54 are computed by the reference (and by backends, golden_backend_test.cc);
// the other 30 need a field that does not exist yet, and are listed with its name.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "attention/reference/reference_attention.h"
#include "gtest/gtest.h"
#include "tests/support/expect_reference.h"
#include "tests/support/golden_file.h"
#include "tests/support/golden_problem.h"
#include "tests/support/paged_run.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr size_t kNumFiles = 84;
constexpr size_t kNumComputed = 54;

// File number → the field that is missing.
const std::map<int, std::string>& RefusedFiles() {
  static const auto* const kRefused = new std::map<int, std::string>{{7, "head_dim_qk"},
                                                                     {10, "head_dim_qk"},
                                                                     {33, "bias"},
                                                                     {34, "bias"},
                                                                     {35, "bias"},
                                                                     {36, "bias"},
                                                                     {37, "bias"},
                                                                     {38, "bias"},
                                                                     {39, "bias"},
                                                                     {40, "bias"},
                                                                     {41, "attention_mask"},
                                                                     {42, "attention_mask"},
                                                                     {43, "attention_mask"},
                                                                     {44, "attention_mask"},
                                                                     {45, "attention_mask"},
                                                                     {46, "key_mask"},
                                                                     {47, "key_mask"},
                                                                     {48, "bias"},
                                                                     {49, "q_segment_ids"},
                                                                     {50, "q_segment_ids"},
                                                                     {51, "q_segment_ids"},
                                                                     {59, "dropout_prob"},
                                                                     {60, "dropout_prob"},
                                                                     {61, "bias"},
                                                                     {62, "normalize_output"},
                                                                     {63, "normalize_output"},
                                                                     {70, "bias"},
                                                                     {76, "dropout_prob"},
                                                                     {82, "op"},
                                                                     {83, "op"}};
  return *kRefused;
}

const std::vector<GoldenFile>& AllFiles() {
  static const auto* const kFiles =
      new std::vector<GoldenFile>(ReadGoldenFolder(GoldenFolder()).value());
  return *kFiles;
}

std::vector<const GoldenFile*> ComputedFiles() {
  std::vector<const GoldenFile*> files;
  for (const GoldenFile& file : AllFiles()) {
    if (MissingField(file).empty()) files.push_back(&file);
  }
  return files;
}

// `answer` as a backend would store it.
ItemOutput Rounded(const reference::Result& answer, DType dtype) {
  ItemOutput output;
  output.out.resize(answer.out.size() * SizeOf(dtype));
  for (size_t i = 0; i < answer.out.size(); ++i) {
    StoreFromFloat(dtype, output.out.data(), static_cast<int64_t>(i),
                   static_cast<float>(answer.out[i]));
  }
  output.lse.assign(answer.lse.begin(), answer.lse.end());
  return output;
}

TEST(GoldenTest, ThirtyFilesAreRefusedByFieldAndTheRestIsComputed) {
  ASSERT_EQ(AllFiles().size(), kNumFiles);
  std::map<int, std::string> refused;
  for (const GoldenFile& file : AllFiles()) {
    const std::string field = MissingField(file);
    if (field.empty()) continue;
    refused[std::stoi(file.stem)] = field;
    std::printf("refused %s: %s\n", file.stem.c_str(), field.c_str());
  }
  EXPECT_EQ(refused, RefusedFiles());
  EXPECT_EQ(ComputedFiles().size(), kNumComputed);
}

TEST(GoldenTest, ReferenceGivesTheGoldenAnswers) {
  for (const GoldenFile* file : ComputedFiles()) {
    const GoldenProblem golden = MakeGoldenProblem(*file, DType::kFloat32);
    for (size_t i = 0; i < golden.problem.items.size(); ++i) {
      const ItemTensors& tensors = golden.problem.tensors[i];
      const reference::Result answer =
          reference::Attend(golden.problem.spec, golden.problem.items[i].AsReferenceItem(),
                            tensors.q.data(), tensors.k.data(), tensors.v.data());
      // The files hold float; the reference must agree to a few units in its last place.
      Expected expected = golden.expected[i];
      expected.out_tolerance = 1e-6 * (1 + file->attrs["ref_absmax"]["out"].number());
      expected.lse_tolerance = 1e-6 * (1 + file->attrs["ref_absmax"]["lse"].number());
      EXPECT_TRUE(IsWithinTolerance(golden.problem, i, expected, Rounded(answer, DType::kFloat32)))
          << file->stem;
    }
  }
}

TEST(GoldenTest, TheFilesDeadRowsAreCountedAlikeByTheReference) {
  for (const GoldenFile* file : ComputedFiles()) {
    const GoldenProblem golden = MakeGoldenProblem(*file, DType::kFloat32);
    // With sinks a dead row has a finite lse: leave them out to see it.
    int dead_rows = 0;
    for (size_t i = 0; i < golden.problem.items.size(); ++i) {
      const ItemTensors& tensors = golden.problem.tensors[i];
      reference::Item item = golden.problem.items[i].AsReferenceItem();
      item.use_sinks = false;
      for (const double lse : reference::Attend(golden.problem.spec, item, tensors.q.data(),
                                                tensors.k.data(), tensors.v.data())
                                  .lse) {
        dead_rows += lse == -std::numeric_limits<double>::infinity();
      }
    }
    if (!file->has("sinks")) {
      EXPECT_EQ(dead_rows, file->attrs["num_dead_rows"].number()) << file->stem;
    }
  }
}

TEST(GoldenTest, NaiveErrorsAreOfTheSizeThatTheFilesState) {
  // The tolerance of fresh cases rests on our naive run; the files were made by another one.
  for (const GoldenFile* file : ComputedFiles()) {
    const GoldenProblem golden = MakeGoldenProblem(*file, DType::kBFloat16);
    double largest = 0;
    for (size_t i = 0; i < golden.problem.items.size(); ++i) {
      largest = std::max(largest, ExpectedOf(golden.problem, i).out_tolerance);
    }
    const double absmax = file->attrs["ref_absmax"]["out"].number();
    const double stated = file->attrs["naive_err"]["bf16"]["out"].number();
    EXPECT_LE(largest, 2 * ToleranceOf(std::max(stated, 0x1p-9 * absmax), absmax)) << file->stem;
    EXPECT_GE(largest, ToleranceOf(stated, absmax) / 2) << file->stem;
  }
}

}  // namespace
}  // namespace attn::test
