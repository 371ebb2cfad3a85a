// Admission by items and bytes, wake-ups, and what a call weighs.
#include "server/core/call_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "attn/base/error.h"

namespace attn::server {
namespace {

std::unique_ptr<Call> CallOf(Request request) {
  auto call = std::make_unique<Call>();
  call->request = std::move(request);
  return call;
}

std::unique_ptr<Call> AttendOf(size_t items, size_t q_bytes = 0) {
  AttendCall attend;
  attend.items.resize(items);
  attend.q.resize(q_bytes);
  return CallOf(std::move(attend));
}

TEST(CallTest, WeighsItsItemsAndItsTensorsInAndOut) {
  AttendCall attend;
  attend.items.resize(3);
  attend.num_q_heads = 2;
  attend.head_dim_v = 8;
  attend.total_q = 5;
  attend.q.resize(100);
  attend.k.resize(20);
  attend.v.resize(3);
  attend.out_dtype = DType::kBFloat16;
  attend.return_lse = true;
  const auto call = CallOf(std::move(attend));
  EXPECT_EQ(call->num_items(), 3u);
  EXPECT_EQ(call->num_bytes(), 100u + 20 + 3 + 5 * 2 * 8 * 2 + 5 * 2 * 4);
  EXPECT_EQ(CallOf(RenewCall{})->num_items(), 1u);
  EXPECT_EQ(CallOf(CloseCall{.sequences = {{1}, {2}}})->num_items(), 2u);
  EXPECT_EQ(CallOf(CloseCall{})->num_bytes(), 0u);
}

TEST(CallQueueTest, CountsUntilRelease) {
  CallQueue queue({.max_items = 4, .max_bytes = 100});
  ASSERT_TRUE(queue.Push(AttendOf(3, 10)).ok());
  const std::vector<std::unique_ptr<Call>> taken = queue.WaitForCalls(0);
  EXPECT_EQ(taken.size(), 1u);
  const absl::Status full = queue.Push(AttendOf(2));
  EXPECT_EQ(ReasonOf(full), Reason::kQueueFull) << "taken is not answered";
  EXPECT_GT(RetryAfterMsOf(full), 0u);
  EXPECT_EQ(ReasonOf(queue.Push(AttendOf(1, 91))), Reason::kQueueFull);
  EXPECT_EQ(queue.load().items, 3u);
  EXPECT_EQ(queue.load().bytes, 10u);
  queue.Release(taken);
  EXPECT_TRUE(queue.Push(AttendOf(4, 100)).ok());
}

std::unique_ptr<Call> AttendThatTakes(CallTime time, Nanos time_limit = kNever) {
  std::unique_ptr<Call> call = AttendOf(1);
  call->time = time;
  call->arrival = 7 * kSecond;
  call->deadline = time_limit == kNever ? kNever : call->arrival + time_limit;
  return call;
}

TEST(CallQueueTest, ACallThatWouldWaitTooLongIsRefusedUntilThereIsLessToDo) {
  CallQueue queue({.max_wait = 20 * kMillisecond});
  ASSERT_TRUE(queue.Push(AttendThatTakes({.bulk = kSecond})).ok()) << "however long it is itself";
  const std::vector<std::unique_ptr<Call>> first = queue.WaitForCalls(0);
  const absl::Status refused = queue.Push(AttendThatTakes({.bulk = kSecond}));
  EXPECT_EQ(ReasonOf(refused), Reason::kQueueFull);
  EXPECT_EQ(RetryAfterMsOf(refused), 980u);
  EXPECT_TRUE(queue.Push(AttendThatTakes({.decode = kMillisecond})).ok()) << "waits for a chunk";
  EXPECT_TRUE(queue.Push(AttendThatTakes({.bulk = 10 * kMillisecond})).ok()) << "overtakes";
  EXPECT_EQ(ReasonOf(queue.Push(AttendThatTakes({.bulk = 15 * kMillisecond}))), Reason::kQueueFull);
  queue.Release(first);
  EXPECT_TRUE(queue.Push(AttendThatTakes({.bulk = 15 * kMillisecond})).ok());
}

TEST(CallQueueTest, ACallThatWorkAheadWouldMakeLateIsRefusedAtOnce) {
  CallQueue queue({});
  ASSERT_TRUE(queue.Push(AttendThatTakes({.decode = 10 * kMillisecond}, kMillisecond)).ok())
      << "nothing is ahead, and an estimate alone refuses nothing";
  EXPECT_EQ(ReasonOf(queue.Push(AttendThatTakes({.decode = 6 * kMillisecond}, 15 * kMillisecond))),
            Reason::kQueueFull);
  EXPECT_TRUE(queue.Push(AttendThatTakes({.decode = 5 * kMillisecond}, 15 * kMillisecond)).ok());
  EXPECT_TRUE(queue.Push(AttendThatTakes({.decode = 6 * kMillisecond})).ok());
  std::unique_ptr<Call> past = AttendThatTakes({}, kMillisecond);
  past->deadline = past->arrival - 5;
  EXPECT_EQ(ReasonOf(queue.Push(std::move(past))), Reason::kQueueFull);
}

TEST(BacklogTest, EveryKindOfWorkWaitsForWhatIsServedBeforeIt) {
  Backlog backlog(5 * kMillisecond);
  const CallTime decode = {.decode = kMillisecond};
  const CallTime short_prompt = {.bulk = 3 * kMillisecond};
  const CallTime long_prompt = {.bulk = 100 * kMillisecond};
  EXPECT_EQ(backlog.WaitOf(long_prompt), 0);
  backlog.Add(short_prompt);
  EXPECT_EQ(backlog.WaitOf(decode), 3 * kMillisecond);
  backlog.Add(long_prompt);
  EXPECT_EQ(backlog.WaitOf(decode), 5 * kMillisecond) << "one chunk of bulk work";
  backlog.Add(decode);
  EXPECT_EQ(backlog.WaitOf(decode), 6 * kMillisecond);
  EXPECT_EQ(backlog.WaitOf(short_prompt), 7 * kMillisecond) << "overtakes the long one";
  EXPECT_EQ(backlog.WaitOf(long_prompt), 104 * kMillisecond);
  backlog.Remove(long_prompt);
  backlog.Remove(short_prompt);
  backlog.Remove(decode);
  EXPECT_EQ(backlog.WaitOf(long_prompt), 0);
}

TEST(CallQueueTest, ACallThatCanNeverFitIsTooLarge) {
  CallQueue queue({.max_items = 4, .max_bytes = 100});
  EXPECT_EQ(ReasonOf(queue.Push(AttendOf(5))), Reason::kTooLarge);
  EXPECT_EQ(ReasonOf(queue.Push(AttendOf(1, 101))), Reason::kTooLarge);
  EXPECT_EQ(queue.load().items, 0u);
}

TEST(CallQueueTest, CallsThatFreeResourcesAreAlwaysAccepted) {
  CallQueue queue({.max_items = 1, .max_bytes = 1});
  ASSERT_TRUE(queue.Push(AttendOf(1)).ok());
  EXPECT_TRUE(queue.Push(CallOf(CloseCall{.sequences = {{1}, {2}}})).ok());
  EXPECT_TRUE(queue.Push(CallOf(RenewCall{})).ok());
  EXPECT_TRUE(queue.Push(CallOf(StreamEndedCall{})).ok());
  EXPECT_EQ(ReasonOf(queue.Push(CallOf(OpenCall{}))), Reason::kQueueFull);
  EXPECT_EQ(queue.WaitForCalls(0).size(), 4u);
}

TEST(CallQueueTest, AClosedQueueIsDraining) {
  CallQueue queue({});
  ASSERT_TRUE(queue.Push(AttendOf(1)).ok());
  queue.Close();
  EXPECT_EQ(ReasonOf(queue.Push(AttendOf(1))), Reason::kDraining);
  EXPECT_EQ(ReasonOf(queue.Push(CallOf(StreamEndedCall{}))), Reason::kDraining);
  EXPECT_EQ(queue.WaitForCalls(0).size(), 1u);
}

TEST(CallQueueTest, AWaitEndsWithACallAPokeOrTheDeadline) {
  CallQueue queue({});
  std::thread caller([&] { EXPECT_TRUE(queue.Push(AttendOf(1)).ok()); });
  EXPECT_EQ(queue.WaitForCalls(kNever).size(), 1u);
  caller.join();
  std::thread poker([&] { queue.Poke(); });
  EXPECT_TRUE(queue.WaitForCalls(kNever).empty());
  poker.join();
  const Nanos before = Clock::Real().Now();
  EXPECT_TRUE(queue.WaitForCalls(before + kMillisecond).empty());
  EXPECT_GE(Clock::Real().Now(), before + kMillisecond);
}

TEST(CallQueueTest, AWaitForMoreCallsEndsWhenThatManyAreThere) {
  CallQueue queue({});
  std::thread caller([&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.Push(AttendOf(1)).ok());
  });
  EXPECT_EQ(queue.WaitForMoreCalls(3, kNever).size(), 3u);
  caller.join();
  ASSERT_TRUE(queue.Push(AttendOf(1)).ok());
  EXPECT_EQ(queue.WaitForMoreCalls(2, Clock::Real().Now() + kMillisecond).size(), 1u);
}

}  // namespace
}  // namespace attn::server
