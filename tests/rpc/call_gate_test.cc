// The gate lets calls in until it closes, and knows when the last one has left.
#include "server/rpc/call_gate.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace attn::test {
namespace {

using server::CallGate;

std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(10);
}

TEST(CallGateTest, AClosedGateRefusesAndWaitsForThoseInside) {
  CallGate gate;
  ASSERT_TRUE(gate.Enter());
  gate.Close();
  EXPECT_FALSE(gate.Enter());
  EXPECT_FALSE(gate.WaitUntilIdle(std::chrono::steady_clock::now()));
  std::thread last([&gate] { gate.Leave(); });
  EXPECT_TRUE(gate.WaitUntilIdle(Soon()));
  last.join();
}

TEST(CallGateTest, ManyThreadsAreCountedRight) {
  CallGate gate;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&gate] {
      while (gate.Enter()) gate.Leave();
    });
  }
  gate.Close();
  EXPECT_TRUE(gate.WaitUntilIdle(Soon()));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(gate.WaitUntilIdle(std::chrono::steady_clock::now()));
}

}  // namespace
}  // namespace attn::test
