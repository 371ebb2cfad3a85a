// Is docs/support.md what the code answers today?
//
//   support_doc_test --write   writes the page anew
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/support_doc/markdown.h"
#include "tests/support_doc/sections.h"

namespace attn::test {
namespace {

const char kPath[] = ATTN_SOURCE_DIR "/docs/support.md";
const char kCommand[] = ATTN_BINARY_DIR "/bin/support_doc_test --write";

std::string Page() {
  return absl::StrCat(
      "<!-- Written by support_doc_test --write, checked by every test run. Do not edit. -->\n"
      "# What is computed, and what is refused\n\n"
      "Every line is an answer of the code itself: the rules of the backends are asked with a spec "
      "for each question, a running server with a call. Nothing is ignored silently: what a line "
      "here does not show as computed is refused by field.\n\n",
      SpecSection(), "\n", WireSection(), "\n", GoldenSection());
}

std::string Committed() {
  std::ifstream stream(kPath);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The first line in which two texts differ, of either.
std::string FirstDifference(const std::string& committed, const std::string& page) {
  const std::vector<std::string> old_lines = absl::StrSplit(committed, '\n');
  const std::vector<std::string> new_lines = absl::StrSplit(page, '\n');
  for (size_t i = 0; i < std::max(old_lines.size(), new_lines.size()); ++i) {
    const std::string old_line = i < old_lines.size() ? old_lines[i] : "(end)";
    const std::string new_line = i < new_lines.size() ? new_lines[i] : "(end)";
    if (old_line != new_line) {
      return absl::StrCat("line ", i + 1, "\n  there: ", old_line, "\n  now:   ", new_line);
    }
  }
  return "";
}

TEST(SupportDocTest, TheCommittedPageIsWhatTheCodeAnswers) {
  const std::string difference = FirstDifference(Committed(), Page());
  EXPECT_EQ(difference, "") << "docs/support.md is stale; write it anew with\n  " << kCommand;
}

TEST(SupportDocTest, RunsAreShort) {
  EXPECT_EQ(Runs({}), "none");
  EXPECT_EQ(Runs({7}), "7");
  EXPECT_EQ(Runs({1, 2, 3, 4}), "1 to 4");
  EXPECT_EQ(Runs({8, 16, 24, 32}), "multiples of 8 from 8 to 32");
  EXPECT_EQ(Runs({1, 2, 3, 8, 16, 24, 100}), "1 to 3, multiples of 8 from 8 to 24, 100");
}

int WritePage() {
  std::ofstream stream(kPath);
  stream << Page();
  stream.close();
  if (!stream) std::fprintf(stderr, "cannot write %s\n", kPath);
  return stream ? 0 : 1;
}

}  // namespace
}  // namespace attn::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  if (argc == 2 && std::string(argv[1]) == "--write") return attn::test::WritePage();
  std::fprintf(stderr, "unknown argument %s, want --write or none\n", argv[1]);
  return 2;
}
