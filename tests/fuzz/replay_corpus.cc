// Every kept input of a fuzzer, without the fuzzer: what was once found stays mended in every run
// of the tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace attn::fuzz {
namespace {

std::vector<std::filesystem::path> InputsOf(const std::string& corpus) {
  const std::filesystem::path folder =
      std::filesystem::path(ATTN_SOURCE_DIR) / "tests/fuzz/corpus" / corpus;
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    inputs.push_back(entry.path());
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

TEST(CorpusTest, NoKeptInputBreaksAPromise) {
  const std::vector<std::filesystem::path> inputs = InputsOf(kCorpusName);
  ASSERT_GT(inputs.size(), 10u);
  for (const std::filesystem::path& input : inputs) {
    std::ifstream file(input, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::fprintf(stderr, "%s\n", input.c_str());  // the last one named is at fault
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              0);
  }
}

}  // namespace
}  // namespace attn::fuzz
