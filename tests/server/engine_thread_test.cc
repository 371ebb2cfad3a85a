// The engine's thread with many callers: made for ThreadSanitizer, and true without it.
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/server/engine_fixture.h"
#include "tests/support/random.h"

namespace attn::server {
namespace {

// Lets a thread wait for its own call.
class WaitingSink : public CallSink {
 public:
  void Complete(std::unique_ptr<Call> call) override {
    std::lock_guard lock(mutex_);
    call_ = std::move(call);
    done_.notify_one();
  }
  std::unique_ptr<Call> Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return call_ != nullptr; });
    return std::move(call_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::unique_ptr<Call> call_;
};

// An engine that runs, on the real clock.
class RunningEngine {
 public:
  explicit RunningEngine(EngineOptions options = SmallEngine())
      : engine(options, test::CreateFakeBackend(device), &registry) {
    device->keeps_records = false;
    engine.Start();
  }

  std::unique_ptr<Call> Send(Request request, WaitingSink& sink,
                             std::shared_ptr<StreamScope> stream = nullptr, Nanos deadline = kNever,
                             const std::shared_ptr<CancelFlag>& cancelled = nullptr) {
    auto call = std::make_unique<Call>();
    call->request = std::move(request);
    call->stream = std::move(stream);
    call->arrival = Clock::Real().Now();
    call->deadline = deadline;
    if (cancelled != nullptr) call->cancelled = cancelled;
    call->sink = &sink;
    const absl::Status pushed = engine.queue().Push(std::move(call));
    if (pushed.ok()) return sink.Wait();
    auto refused = std::make_unique<Call>();
    refused->status = pushed;
    return refused;
  }

  std::shared_ptr<test::FakeDevice> device = std::make_shared<test::FakeDevice>();
  ModelRegistry registry;
  Engine engine;
};

Request OpenOf(const ModelPtr& model, const std::string& owner, Nanos lease) {
  OpenCall open;
  open.model = model;
  open.owner = owner;
  open.lease = lease;
  open.items.resize(1);
  return open;
}

Request AppendOf(const ModelPtr& model, uint64_t sequence, uint32_t layer, uint32_t len,
                 uint32_t q_len = 1) {
  AttendCall attend;
  attend.num_q_heads = attend.num_kv_heads = 1;
  attend.head_dim_qk = attend.head_dim_v = EngineFixture::kDim;
  attend.total_q = q_len;
  attend.items.resize(1);
  AttendItem& item = attend.items[0];
  item.sequence.value = sequence;
  item.layer = layer;
  item.expected_len = len;
  item.q_len = q_len;
  item.kv_new_len = 1;
  item.append_token = len + 1;
  item.model = model;
  attend.q.assign(size_t{q_len} * EngineFixture::kDim * 4, '\0');
  attend.k.assign(size_t{EngineFixture::kDim} * 4, '\0');
  attend.v = attend.k;
  return attend;
}

TEST(EngineThreadTest, ManyCallersAreServedAndNothingIsLost) {
  RunningEngine running;
  WaitingSink sink;
  running.Send(DeclareModelCall{FixtureModel({}, "model")}, sink);
  const ModelPtr model = running.registry.FindByName("model");
  constexpr int kThreads = 8;
  std::atomic<int> late = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      test::Random random(static_cast<uint64_t>(i));
      WaitingSink mine;
      auto stream = std::make_shared<StreamScope>();
      for (int round = 0; round < 10; ++round) {
        auto opened = running.Send(OpenOf(model, "owner" + std::to_string(i), kSecond * 60), mine);
        const uint64_t s = std::get<OpenResult>(opened->result).items[0].value().value;
        for (uint32_t len = 0; len < 20;) {
          const bool hurried = random.Chance(0.2);
          const Nanos deadline =
              hurried ? Clock::Real().Now() + random.Integer(0, 100) * kMicrosecond : kNever;
          auto flag = std::make_shared<CancelFlag>(random.Chance(0.05));
          auto call =
              running.Send(AppendOf(model, s, len % 2, len / 2), mine, stream, deadline, flag);
          const auto& item = std::get<AttendResult>(call->result).items[0];
          const Reason reason = ReasonOf(item.status);
          if (reason == Reason::kOk) {
            EXPECT_EQ(item.new_len, len / 2 + 1);
            ++len;
            continue;
          }
          EXPECT_TRUE(reason == Reason::kDeadline || reason == Reason::kCancelled) << item.status;
          ++late;
          if (item.new_len == len / 2 + 1) ++len;
        }
        auto closed = running.Send(CloseCall{.sequences = {{s}}}, mine);
        EXPECT_TRUE(std::get<CloseResult>(closed->result).items[0].ok());
      }
      running.Send(StreamEndedCall{}, mine, stream);
    });
  }
  for (int i = 0; i < 200; ++i) {
    running.engine.queue().Poke();
    EXPECT_GE(running.engine.cache_stats().num_sequences, 0);
    EXPECT_TRUE(running.engine.Supports(AttentionSpec()).ok());
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  running.engine.Stop();
  EXPECT_EQ(running.engine.cache_stats().num_sequences, 0);
  EXPECT_EQ(running.engine.queue().load().items, 0u);
  EXPECT_EQ(running.engine.stats().appended_tokens.value(), uint64_t{kThreads} * 10 * 20);
  const absl::Status invariants = running.engine.cache_for_test().CheckInvariants();
  EXPECT_TRUE(invariants.ok()) << invariants;
}

TEST(EngineThreadTest, EveryCallIsAnsweredOnceWhenTheEngineStopsUnderLoad) {
  RunningEngine running;
  WaitingSink first;
  running.Send(DeclareModelCall{FixtureModel({}, "model")}, first);
  const ModelPtr model = running.registry.FindByName("model");
  std::atomic<int> refused = 0;
  std::atomic<int> started = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      WaitingSink mine;
      auto opened = running.Send(OpenOf(model, std::to_string(i), kSecond * 60), mine);
      if (!opened->status.ok()) return;
      const uint64_t s = std::get<OpenResult>(opened->result).items[0].value().value;
      ++started;
      for (uint32_t len = 0;; ++len) {
        auto call = running.Send(AppendOf(model, s, 0, len), mine);
        if (ReasonOf(call->status) == Reason::kDraining) break;
        ASSERT_TRUE(call->status.ok());
      }
      ++refused;
    });
  }
  while (started < 6 || running.engine.heartbeat() < 200) std::this_thread::yield();
  running.engine.Stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 6);
  EXPECT_EQ(running.engine.queue().load().items, 0u);
}

TEST(EngineThreadTest, PagesOfAVanishedClientComeBackWithinASecondOfItsLease) {
  RunningEngine running;
  WaitingSink sink;
  running.Send(DeclareModelCall{FixtureModel({}, "model")}, sink);
  const ModelPtr model = running.registry.FindByName("model");
  const Nanos lease = 50 * kMillisecond;
  auto opened = running.Send(OpenOf(model, "gone", lease), sink);
  const uint64_t s = std::get<OpenResult>(opened->result).items[0].value().value;
  const Nanos before = Clock::Real().Now();
  running.Send(AppendOf(model, s, 0, 0), sink);
  const Nanos left = Clock::Real().Now();
  // The engine is idle: nothing but its own timer can do this.
  while (running.engine.stats().expired_sequences.value() == 0) {
    ASSERT_LT(Clock::Real().Now() - left, lease + kSecond);
    std::this_thread::yield();
  }
  EXPECT_GE(Clock::Real().Now() - before, lease) << "not before its time";
  running.engine.Stop();
  EXPECT_EQ(running.engine.cache_stats().live_bytes, 0);
}

TEST(EngineThreadTest, AnIdleEngineUsesNoTime) {
  RunningEngine running;
  WaitingSink sink;
  running.Send(DeclareModelCall{FixtureModel({}, "model")}, sink);
  running.Send(OpenOf(running.registry.FindByName("model"), "me", 3600 * kSecond), sink);
  const uint64_t steps = running.engine.heartbeat();
  timespec pause{.tv_sec = 0, .tv_nsec = 200'000'000};
  nanosleep(&pause, nullptr);
  EXPECT_LE(running.engine.heartbeat(), steps + 2) << "it sleeps until its next lease ends";
}

TEST(EngineThreadTest, ALoneCallerIsNeverKeptWaitingForOthers) {
  EngineOptions options = SmallEngine();
  options.max_batch_wait = kSecond;
  RunningEngine running(options);
  WaitingSink sink;
  running.Send(DeclareModelCall{FixtureModel({}, "model")}, sink);
  const ModelPtr model = running.registry.FindByName("model");
  auto opened = running.Send(OpenOf(model, "me", 3600 * kSecond), sink);
  const uint64_t s = std::get<OpenResult>(opened->result).items[0].value().value;
  for (uint32_t len = 0; len < 200; ++len) {
    auto call = running.Send(AppendOf(model, s, 0, len), sink);
    EXPECT_LT(std::get<AttendResult>(call->result).timing.queue, kSecond / 2);
  }
}

}  // namespace
}  // namespace attn::server
