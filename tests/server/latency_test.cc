// How long calls wait for each other, on a clock that only launches move.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;

FixtureOptions LongSequences() {
  FixtureOptions options;
  options.num_heads = 4;
  options.page_size = 64;
  options.engine.kv_bytes = int64_t{1} << 28;
  return options;
}

class LatencyTest : public ::testing::Test {
 protected:
  LatencyTest() {
    f.device->computes = false;
    f.device->keeps_records = false;
    // A slow core: a chunk of 5 ms is 1e8 flops.
    f.device->nanos_per_flop = 0.05;
    f.device->nanos_per_byte = 0.4;
  }

  // Sends one-token appends one after another, each when the last is answered, while the engine
  // runs; returns their times in order of size.
  std::vector<Nanos> Decode(uint64_t sequence, uint32_t first_len, int count) {
    std::vector<Nanos> times;
    for (int i = 0; i < count; ++i) {
      const Nanos sent = f.clock.Now();
      // Arrives in the middle of a step, as callers do.
      f.clock.Advance(37 * kMicrosecond);
      const uint64_t call = f.Push(
          f.Attend({{.seq = sequence, .expected_len = first_len + uint32_t(i), .tokens = {1}}}));
      while (f.Answer(call) == nullptr) f.engine->StepByHand();
      EXPECT_EQ(ReasonAt(f.AttendAnswer(call), 0), Reason::kOk);
      times.push_back(f.clock.Now() - sent);
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  EngineFixture f{LongSequences()};
};

TEST_F(LatencyTest, DecodeWaitsForAboutOneChunkWhileALongPrefillRuns) {
  constexpr uint32_t kPrompt = 128 * 1024;
  const uint64_t s = f.Open("owner", 36000 * kSecond);
  const uint64_t t = f.Open("owner", 36000 * kSecond);
  const std::vector<Nanos> alone = Decode(t, 0, 200);
  const Item prompt{.seq = s, .tokens = std::vector<int>(kPrompt, 1), .q_len = kPrompt};
  const uint64_t prefill = f.Push(f.Attend({prompt}));
  f.engine->StepByHand();
  const std::vector<Nanos> beside = Decode(t, 200, 1000);
  ASSERT_EQ(f.Answer(prefill), nullptr) << "the prefill ran all the time";
  const size_t p99 = beside.size() * 99 / 100;
  const Nanos growth = beside[p99] - alone[alone.size() * 99 / 100];
  EXPECT_LE(growth, f.engine->options().chunk_time * 5 / 4) << "one chunk and what it is off by";
  EXPECT_LE(Nanos(f.engine->stats().longest_step_ns.value()), 2 * f.engine->options().chunk_time);
  EXPECT_GT(f.engine->stats().prefill_chunks.value(), 900u) << "the prefill got on";
}

TEST_F(LatencyTest, DecodeWaitsForAboutOneChunkWhileAMessageOf128KTokensIsAppended) {
  constexpr uint32_t kTokens = 128 * 1024;
  const uint64_t s = f.Open("owner", 36000 * kSecond);
  const uint64_t t = f.Open("owner", 36000 * kSecond);
  const std::vector<Nanos> alone = Decode(t, 0, 200);
  const Item tokens{.seq = s, .tokens = std::vector<int>(kTokens, 1), .q_len = 0};
  const uint64_t append = f.Push(f.Attend({tokens}));
  std::vector<Nanos> beside;
  for (uint32_t len = 200; f.Answer(append) == nullptr; ++len) {
    beside.push_back(Decode(t, len, 1)[0]);
  }
  EXPECT_GT(beside.size(), 2u) << "appended in steps";
  std::sort(beside.begin(), beside.end());
  EXPECT_LE(beside.back() - alone.back(), f.engine->options().chunk_time * 5 / 4);
  EXPECT_EQ(f.AttendAnswer(append).items[0].new_len, kTokens);
}

TEST_F(LatencyTest, AShortPromptDoesNotWaitForALongOne) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  const std::vector<int> long_prompt(50000, 1);
  const std::vector<int> short_prompt(500, 1);
  const uint64_t first = f.Push(f.Attend({{.seq = s, .tokens = long_prompt, .q_len = 50000}}));
  f.engine->StepByHand();
  const uint64_t second = f.Push(f.Attend({{.seq = t, .tokens = short_prompt, .q_len = 500}}));
  int steps = 0;
  while (f.Answer(second) == nullptr) {
    f.engine->StepByHand();
    ASSERT_LT(++steps, 10);
  }
  EXPECT_EQ(f.Answer(first), nullptr);
}

TEST_F(LatencyTest, AnInteractiveCallRunsInTheNextStepThoughBatchWorkFillsTheEngine) {
  const uint64_t t = f.Open();
  std::vector<uint64_t> sequences;
  for (int i = 0; i < 20; ++i) sequences.push_back(f.Open());
  std::vector<uint64_t> backlog;
  for (const uint64_t s : sequences) {
    auto call = f.Attend({{.seq = s, .tokens = std::vector<int>(20000, 1), .q_len = 1}});
    std::get<AttendCall>(call->request).priority = Priority::kBatch;
    backlog.push_back(f.Push(std::move(call)));
  }
  f.engine->StepByHand();
  auto urgent = f.Attend({{.seq = t, .tokens = {1}}});
  std::get<AttendCall>(urgent->request).priority = Priority::kInteractive;
  const uint64_t call = f.Push(std::move(urgent));
  f.engine->StepByHand();
  EXPECT_NE(f.Answer(call), nullptr);
  EXPECT_EQ(f.Answer(backlog.back()), nullptr);
  f.Drain();
  for (const uint64_t id : backlog) EXPECT_NE(f.Answer(id), nullptr);
}

TEST_F(LatencyTest, ASequencesPriorityServesCallsThatNameNone) {
  OpenCall open;
  open.model = f.model;
  open.owner = "owner";
  open.lease = 3600 * kSecond;
  open.items = {{.alias = 0, .priority = Priority::kBatch}};
  const Call& opened = f.Run(f.Make(open));
  const uint64_t slow = std::get<OpenResult>(opened.result).items[0]->value;
  const uint64_t normal = f.Open();
  // Each fills a step by itself, so the order of the answers is the order of the steps.
  for (const uint64_t s : {slow, normal}) {
    f.RunAttend({{.seq = s, .tokens = std::vector<int>(100000, 1), .q_len = 0}});
  }
  std::vector<uint64_t> calls;
  for (const uint64_t s : {slow, normal}) {
    calls.push_back(f.Push(f.Attend({{.seq = s, .q_len = 16}})));
  }
  f.engine->StepByHand();
  EXPECT_EQ(f.Answer(calls[0]), nullptr);
  EXPECT_NE(f.Answer(calls[1]), nullptr);
  f.Drain();
}

}  // namespace
}  // namespace attn::server
