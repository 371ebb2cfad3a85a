// Deadlines that race with the answer: every client steers its own to where half of its calls come
// too late. Each call ends once, nothing is appended twice, no page is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/e2e/test_server.h"

namespace attn::test {
namespace {

using std::chrono::microseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr int kClients = 16;
constexpr int kCalls = 800;  // of a client

// Goes up after a call that was late and down after one that was not, and so stays where half are.
class MedianTime {
 public:
  microseconds time() const { return microseconds(static_cast<int64_t>(time_)); }
  void Note(bool late) { time_ = std::clamp(time_ * (late ? 1.1 : 1 / 1.1), 10.0, 5e6); }

 private:
  double time_ = 1000;
};

// Refused when it came, because it would have been late.
bool IsRefused(const v1::Status& status) { return status.reason() == v1::REASON_QUEUE_FULL; }

bool IsLate(const v1::AttendResponse& response) {
  if (response.item_reasons().empty()) return false;
  EXPECT_THAT(response.item_reasons(), ElementsAre(v1::REASON_DEADLINE));
  return true;
}

// One token each on a sequence of its own, and what the sequence holds.
class DecodingClient {
 public:
  DecodingClient(TestServer& server, int number)
      : stubs_(server.server().address()),
        random_(800 + static_cast<uint64_t>(number)),
        id_(server.OpenOne("deadlines " + std::to_string(number))) {}

  // How many of the calls were late. Those are repeated, token and all, until they have an answer:
  // nobody knows whether they ran, or whether they will.
  int RunUnary() {
    int num_late = 0;
    Step step = NextStep();
    for (int i = 0; i < kCalls; ++i) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + median_.time());
      v1::AttendResponse response;
      const grpc::Status status =
          stubs_.attention->Attend(&context, MakeRequest({step}), &response);
      const bool refused =
          status.error_code() == grpc::RESOURCE_EXHAUSTED && IsRefused(DetailOf(status));
      EXPECT_TRUE(refused || status.ok() || status.error_code() == grpc::DEADLINE_EXCEEDED)
          << status.error_code() << ": " << status.error_message();
      const bool late = !status.ok() || IsLate(response);
      median_.Note(late);
      num_late += late;
      if (late) continue;
      ExpectAnswer(step, response);
      step = NextStep();
    }
    last_ = std::move(step);
    return num_late;
  }

  // The same with the time limits of a stream, whose answers say what was appended.
  int RunStream() {
    int num_late = 0;
    grpc::ClientContext context;
    const auto stream = stubs_.attention->AttendStream(&context);
    v1::AttendStreamResponse answer;
    for (uint64_t i = 1; i <= kCalls; ++i) {
      const Step step = NextStep();
      v1::AttendStreamRequest message;
      message.set_request_id(i);
      message.set_timeout_us(static_cast<uint32_t>(median_.time().count()));
      *message.mutable_attend() = MakeRequest({step});
      stream->Write(message);
      EXPECT_TRUE(stream->Read(&answer));
      EXPECT_EQ(answer.request_id(), i);
      const bool refused = IsRefused(answer.status());
      EXPECT_TRUE(refused || answer.has_attend()) << answer.ShortDebugString();
      const bool late = refused || IsLate(answer.attend());
      median_.Note(late);
      num_late += late;
      if (refused) {
        kv_.Truncate(step.expected_len);
      } else if (late) {
        EXPECT_THAT(answer.attend().new_lens(0), AnyOf(step.expected_len, step.expected_len + 1));
        kv_.Truncate(answer.attend().new_lens(0));
      } else {
        ExpectAnswer(step, answer.attend());
      }
    }
    last_ = NextStep();
    stream->WritesDone();
    EXPECT_FALSE(stream->Read(&answer)) << "a second answer to " << answer.request_id();
    EXPECT_TRUE(stream->Finish().ok());
    return num_late;
  }

  // The last step again, with all the time it wants, then the end of the sequence.
  void FinishOn(TestServer& server) {
    ExpectAnswer(last_, server.Attend(MakeRequest({last_})));
    server.Close({id_});
  }

 private:
  Step NextStep() { return AppendStep(random_, id_, 0, 1, &kv_); }

  void ExpectAnswer(const Step& step, const v1::AttendResponse& response) const {
    ExpectNear(Floats(response.out()), PlainAttend(kv_, step.q,
                                                   {.q_start = int64_t{step.expected_len},
                                                    .kv_end = int64_t{step.expected_len} + 1}));
  }

  Stubs stubs_;
  Random random_;
  const uint64_t id_;
  PlainLayer kv_;
  Step last_;
  MedianTime median_;
};

void RunClients(int (DecodingClient::*run)()) {
  TestServer server;
  std::atomic<int> num_late{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      DecodingClient client(server, c);
      num_late += (client.*run)();
      client.FinishOn(server);
    });
  }
  for (std::thread& client : clients) client.join();
  constexpr int kTotal = kClients * kCalls;
  EXPECT_THAT(num_late.load(), AllOf(Ge(kTotal / 4), Le(kTotal * 3 / 4)));
  EXPECT_TRUE(server.PagesComeBackWithin(std::chrono::seconds(5)));
  server.server().Drain();  // ends the engine's thread
  const absl::Status accounts = server.server().engine().cache_for_test().CheckInvariants();
  EXPECT_TRUE(accounts.ok()) << accounts;
}

TEST(DeadlinesTest, UnaryCallsOfWhichHalfAreLateEndOnceEach) {
  RunClients(&DecodingClient::RunUnary);
}

TEST(DeadlinesTest, StreamRequestsOfWhichHalfAreLateAreAnsweredOnceEach) {
  RunClients(&DecodingClient::RunStream);
}

}  // namespace
}  // namespace attn::test
