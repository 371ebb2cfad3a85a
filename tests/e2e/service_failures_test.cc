// Failures of other servers, as docs/failures.md lists them, tried on this one: clients that vanish
// by the hundred, more requests than there is room for, a full cache, a slow device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/e2e/health_watcher.h"
#include "tests/e2e/test_server.h"
#include "tests/support/fake_backend.h"
#include "tests/support/process_memory.h"

namespace attn::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;

// A device that does nothing until it is told to.
struct StoppedDevice {
  StoppedDevice() {
    device->on_launch = [this, wait = released](const Batch&) {
      if (!is_started.exchange(true)) started.set_value();
      wait.wait();
    };
  }
  std::promise<void> started, release;
  std::atomic<bool> is_started{false};
  std::shared_future<void> released = release.get_future().share();
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
};

uint64_t OpenWithLease(Stubs& stubs, const std::string& owner, uint32_t lease_ms) {
  v1::OpenSequencesRequest request;
  request.set_model("tiny");
  request.set_owner(owner);
  request.set_lease_ms(lease_ms);
  request.add_items();
  grpc::ClientContext context;
  v1::OpenSequencesResponse response;
  EXPECT_TRUE(stubs.sequences->OpenSequences(&context, request, &response).ok());
  return response.sequence_ids(0);
}

std::chrono::microseconds MedianOf(std::vector<steady_clock::duration> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return std::chrono::duration_cast<std::chrono::microseconds>(times[times.size() / 2]);
}

// A client that is gone while its prompt is in line. All are of one owner: opening two hundred
// takes longer than a lease, and each call renews it.
class VanishingClient {
 public:
  VanishingClient(TestServer& server, int number)
      : stubs_(server.server().address()),
        random_(1000 + static_cast<uint64_t>(number)),
        id_(OpenWithLease(stubs_, "gone", kLeaseMs)),
        stream_(stubs_.attention->AttendStream(&context_)) {}
  ~VanishingClient() { context_.TryCancel(); }

  static constexpr uint32_t kLeaseMs = 3000;

  void SendPrompt() {
    PlainLayer kv;
    v1::AttendStreamRequest message;
    message.set_request_id(1);
    *message.mutable_attend() = MakeRequest({AppendStep(random_, id_, 0, 500, &kv)});
    EXPECT_TRUE(stream_->Write(message));
  }

 private:
  Stubs stubs_;
  Random random_;
  const uint64_t id_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>>
      stream_;
};

TEST(ServiceFailuresTest, TwoHundredClientsThatVanishInLineAreForgottenAndTheNextIsServed) {
  StoppedDevice stopped;
  TestServer server(TestOptions(), CreateFakeBackend(stopped.device));
  const auto& queue = server.server().engine().queue();
  {
    std::vector<std::unique_ptr<VanishingClient>> clients;
    for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<VanishingClient>(server, i));
    for (const auto& client : clients) client->SendPrompt();
    const auto patience = steady_clock::now() + std::chrono::seconds(60);
    while (queue.load().items < 200 && steady_clock::now() < patience) std::this_thread::yield();
    EXPECT_EQ(queue.load().items, 200);
  }
  stopped.release.set_value();
  Random random(1300);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  const auto began = steady_clock::now();
  EXPECT_THAT(server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)})).new_lens(),
              ElementsAre(1));
  EXPECT_LT(steady_clock::now() - began, milliseconds(500));
  server.Close({id});
  EXPECT_TRUE(server.PagesComeBackWithin(milliseconds(3 * VanishingClient::kLeaseMs)));
}

// Sends `count` requests on a stream of its own and counts what becomes of them.
class Sender {
 public:
  Sender(TestServer& server, const v1::AttendRequest& request, uint64_t count)
      : stubs_(server.server().address()),
        stream_(stubs_.attention->AttendStream(&context_)),
        writer_([this, request, count] { Write(request, count); }),
        reader_([this] { Read(); }) {}
  void Join() {
    writer_.join();
    reader_.join();
  }
  uint64_t answered() const { return answered_; }
  uint64_t refused() const { return refused_; }

 private:
  void Write(const v1::AttendRequest& request, uint64_t count) {
    v1::AttendStreamRequest message;
    *message.mutable_attend() = request;
    for (uint64_t id = 1; id <= count; ++id) {
      message.set_request_id(id);
      EXPECT_TRUE(stream_->Write(message));
    }
    stream_->WritesDone();
  }
  void Read() {
    v1::AttendStreamResponse response;
    while (stream_->Read(&response)) {
      answered_ += response.has_attend();
      refused_ += response.status().reason() == v1::REASON_QUEUE_FULL;
    }
  }

  Stubs stubs_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>>
      stream_;
  std::atomic<uint64_t> answered_{0};
  std::atomic<uint64_t> refused_{0};
  std::thread writer_;
  std::thread reader_;
};

TEST(ServiceFailuresTest, RequestsThatNobodyTakesFillTheQueueAndTheRestIsRefusedFast) {
  constexpr uint64_t kStreams = 24;
  constexpr uint64_t kRequests = 80;  // of a stream; 120 MiB in all
  StoppedDevice stopped;
  server::ServerOptions options = TestOptions();
  options.engine.queue.max_bytes = 8 << 20;
  options.limits.max_message_bytes = 1 << 20;
  TestServer server(options, CreateFakeBackend(stopped.device));
  Random random(1400);
  const Step read{.sequence = server.OpenOne(), .q = RandomRows(random, 256, kQHeads)};
  const v1::AttendRequest request = MakeRequest({read});  // 64 KiB
  const MemoryMark mark;
  const auto began = steady_clock::now();
  std::vector<std::unique_ptr<Sender>> senders;
  for (uint64_t i = 0; i < kStreams; ++i) {
    senders.push_back(std::make_unique<Sender>(server, request, kRequests));
  }
  const auto sum = [&senders](uint64_t (Sender::*count)() const) {
    uint64_t total = 0;
    for (const auto& sender : senders) total += (*sender.*count)();
    return total;
  };
  // Eight streams can fill the queue, and are read no further then.
  constexpr uint64_t kRefused = (kStreams - 8) * kRequests - 128;
  while (sum(&Sender::refused) < kRefused &&
         steady_clock::now() < began + std::chrono::seconds(10)) {
    std::this_thread::yield();
  }
  EXPECT_GE(sum(&Sender::refused), kRefused);
  EXPECT_EQ(sum(&Sender::answered), 0u);
  EXPECT_LE(server.server().engine().queue().load().bytes, options.engine.queue.max_bytes);
  EXPECT_LT(mark.growth(), 80 << 20);
  stopped.release.set_value();
  for (const auto& sender : senders) sender->Join();
  EXPECT_EQ(sum(&Sender::refused) + sum(&Sender::answered), kStreams * kRequests);
  EXPECT_GT(sum(&Sender::answered), 10u);
}

TEST(ServiceFailuresTest, AFullCacheRefusesAHundredAppendsAsFastAsItTookOthers) {
  server::ServerOptions options = TestOptions();
  options.engine.kv_bytes = 4 << 20;
  TestServer server(options);
  Random random(1500);
  const uint64_t full = server.OpenOne("full");
  const uint64_t other = server.OpenOne("other");
  PlainLayer kv, rest;
  std::vector<steady_clock::duration> taken, refused;
  const auto append = [&](uint64_t id, int64_t count, PlainLayer* layer) {
    PlainLayer before = *layer;
    Step step = AppendStep(random, id, 0, count, layer);
    step.q.clear();
    const v1::AttendRequest request = MakeRequest({step});
    const auto began = steady_clock::now();
    const v1::AttendResponse response = server.Attend(request);
    const bool is_taken = response.errors_size() == 0;
    (is_taken ? taken : refused).push_back(steady_clock::now() - began);
    if (is_taken) return v1::REASON_OK;
    *layer = std::move(before);
    return response.item_reasons(0);
  };
  ASSERT_EQ(append(other, 100, &rest), v1::REASON_OK);
  while (kv.len() < 8000 && append(full, 500, &kv) == v1::REASON_OK) {
  }
  while (append(other, 500, &rest) == v1::REASON_OK) {
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(append(other, 500, &rest), v1::REASON_NO_PAGES);
  EXPECT_GE(taken.size(), 10u);
  EXPECT_LT(MedianOf(refused), 3 * MedianOf(taken));
  server.Close({full});
  EXPECT_EQ(append(other, 3000, &rest), v1::REASON_OK);
}

TEST(ServiceFailuresTest, HealthAnswersWithinHalfALaunch) {
  auto device = std::make_shared<FakeDevice>();
  device->on_launch = [](const Batch&) { std::this_thread::sleep_for(milliseconds(50)); };
  TestServer server(TestOptions(), CreateFakeBackend(device));
  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&server, &stop, c] {
      Stubs stubs(server.server().address());
      Random random(1600 + static_cast<uint64_t>(c));
      const uint64_t id = OpenWithLease(stubs, "busy " + std::to_string(c), 60'000);
      const v1::AttendRequest read =
          MakeRequest({{.sequence = id, .q = RandomRows(random, 1, kQHeads)}});
      while (!stop) {
        grpc::ClientContext context;
        v1::AttendResponse response;
        EXPECT_TRUE(stubs.attention->Attend(&context, read, &response).ok());
      }
    });
  }
  while (server.server().engine().stats().launches.value() < 4) std::this_thread::yield();
  std::vector<steady_clock::duration> times;
  for (int i = 0; i < 41; ++i) {
    const auto began = steady_clock::now();
    EXPECT_EQ(HealthOf(server.stubs().channel, ""), kServing);
    times.push_back(steady_clock::now() - began);
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_LT(MedianOf(times), milliseconds(25));
}

// Whoever embeds the server keeps the say over signals.
TEST(ServiceFailuresTest, TheLibraryInstallsNoSignalHandler) {
  const auto handlers = [] {
    std::array<void (*)(int), NSIG> all = {};
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action = {};
      if (sigaction(number, nullptr, &action) == 0) {
        all[static_cast<size_t>(number)] = action.sa_handler;
      }
    }
    return all;
  };
  grpc_init();  // gRPC's own are not ours
  const auto before = handlers();
  {
    TestServer server;
    const uint64_t id = server.OpenOne();
    EXPECT_GT(id, 0u);
    EXPECT_EQ(handlers(), before);
  }
  EXPECT_EQ(handlers(), before);
  grpc_shutdown();
}

}  // namespace
}  // namespace attn::test
