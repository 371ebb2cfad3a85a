// Resident memory does not grow with the number of calls: what a call took is given back or used
// again.
//
//   memory_growth_test --calls=1000000    as many small calls, and a thousandth of large ones
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "absl/strings/match.h"
#include "tests/e2e/test_server.h"
#include "tests/support/process_memory.h"

namespace attn::test {
namespace {

int64_t g_calls = 20'000;

TEST(MemoryGrowthTest, CallsLeaveNothingBehindInTheProcess) {
  TestServer server;
  Random random(1700);
  const auto run = [&](int64_t calls) {
    for (int64_t i = 0; i < calls; i += 100) {
      const uint64_t id = server.OpenOne("owner " + std::to_string(i));
      PlainLayer kv;
      for (int64_t j = 0; j < 100; ++j) {
        server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)}));
      }
      server.Close({id});
      if (i % 1000 != 0) continue;
      const uint64_t large = server.OpenOne();
      PlainLayer prompt;
      server.Attend(MakeRequest({AppendStep(random, large, 0, 1000, &prompt)}));
      server.Close({large});
    }
  };
  run(g_calls / 10);  // what grows while it warms up
  malloc_trim(0);
  const MemoryMark mark;
  run(g_calls - g_calls / 10);
  malloc_trim(0);
  constexpr int64_t kNoise = 4 << 20;
  EXPECT_LT(mark.growth_now(), mark.before() / 20 + kNoise);
}

}  // namespace
}  // namespace attn::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (absl::StartsWith(argument, "--calls=")) {
      attn::test::g_calls = std::stoll(argument.substr(8));
    }
  }
  return RUN_ALL_TESTS();
}
