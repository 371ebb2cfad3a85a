// The stream: answers find their requests whatever happens to the connection in between.
#include "attn/client/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "attn/base/error.h"
#include "attn/client/client.h"
#include "tests/client/fake_server.h"
#include "tests/client/request_maker.h"

namespace attn::client {
namespace {

using Answer = absl::StatusOr<AttendResult>;

constexpr uint64_t kSequence = (uint64_t{1} << 48) + 5;

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    auto client = Client::Connect(server_.target());
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::unique_ptr<Stream> Open(uint32_t max_attempts = 6, uint32_t max_in_flight = 256) {
    StreamOptions options;
    options.retry = FastRetry(max_attempts);
    options.max_in_flight = max_in_flight;
    return client_->OpenStream(options);
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
};

TEST_F(StreamTest, ManyRequestsInFlightGetTheirOwnAnswers) {
  const auto stream = Open();
  std::vector<std::unique_ptr<RequestMaker>> makers;
  std::vector<std::future<Answer>> answers;
  for (uint32_t i = 0; i < 300; ++i) {
    makers.push_back(std::make_unique<RequestMaker>(
        std::vector<AttendItem>{OneToken(kSequence + i, 0)}, static_cast<float>(i)));
    answers.push_back(stream->Attend(makers.back()->request()));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer answer = answers[i].get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->out, makers[i]->out()) << i;
  }
  EXPECT_EQ(server_.num_streams(), 1);
  EXPECT_EQ(stream->stats().requests, 300u);
}

TEST_F(StreamTest, ACallbackMaySendTheNextRequest) {
  const auto stream = Open();
  std::promise<uint32_t> done;
  std::function<void(uint32_t)> step = [&](uint32_t len) {
    RequestMaker maker({OneToken(kSequence, len)});
    stream->Attend(maker.request(), [&, len](Answer answer) {
      if (!answer.ok() || !answer->FirstError().ok() || len == 49) {
        done.set_value(answer.ok() ? answer->items[0].new_len : 0);
      } else {
        step(len + 1);
      }
    });
  };
  step(0);
  EXPECT_EQ(done.get_future().get(), 50u);
}

TEST_F(StreamTest, AConnectionThatBreaksIsReplacedAndNothingIsAppendedTwice) {
  FakeServer::Faults faults;
  faults.drop_answer = [](int nth) { return nth % 7 == 6; };
  server_.SetFaults(faults);
  const auto stream = Open();
  bool any_replayed = false;
  for (uint32_t len = 0; len < 30; ++len) {
    RequestMaker maker({OneToken(kSequence, len)}, static_cast<float>(len));
    const Answer answer = stream->Attend(maker.request()).get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_TRUE(answer->FirstError().ok()) << answer->FirstError();
    EXPECT_EQ(answer->out, maker.out());
    any_replayed |= answer->items[0].replayed;
  }
  EXPECT_TRUE(any_replayed);
  EXPECT_EQ(server_.LengthOf(kSequence, 0), 30u);
  EXPECT_EQ(stream->stats().reconnects, 4u);
  EXPECT_EQ(stream->stats().repeats, 4u);
}

TEST_F(StreamTest, AllUnansweredRequestsOfABrokenConnectionAreSentAgainInOrder) {
  FakeServer::Faults faults;
  faults.hold = [](int nth) { return nth < 4; };
  faults.drop_answer = [](int nth) { return nth == 4; };
  server_.SetFaults(faults);
  const auto stream = Open();
  std::vector<std::future<Answer>> answers;
  // Appends to one layer, pipelined: they work in this order only.
  for (uint32_t len = 0; len < 4; ++len) {
    RequestMaker maker({OneToken(kSequence, len)});
    answers.push_back(stream->Attend(maker.request()));
  }
  RequestMaker breaking({OneToken(kSequence + 1, 0)});
  answers.push_back(stream->Attend(breaking.request()));
  for (auto& answer : answers) {
    const Answer got = answer.get();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(got->FirstError().ok()) << got->FirstError();
  }
  EXPECT_EQ(server_.LengthOf(kSequence, 0), 4u);
  EXPECT_EQ(server_.LengthOf(kSequence + 1, 0), 1u);
}

TEST_F(StreamTest, AServerThatComesBackIsUsedAgain) {
  const auto stream = Open(12);
  RequestMaker first({OneToken(kSequence, 0)});
  ASSERT_TRUE(stream->Attend(first.request()).get().ok());
  server_.Stop();
  RequestMaker second({OneToken(kSequence, 1)});
  auto answer = stream->Attend(second.request());
  server_.Start();
  const Answer got = answer.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->items[0].new_len, 2u);
}

TEST_F(StreamTest, AServerThatStaysAwayIsUnavailable) {
  server_.Stop();
  const auto stream = Open(3);
  RequestMaker maker({OneToken(kSequence, 0)});
  EXPECT_EQ(stream->Attend(maker.request()).get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StreamTest, QueueFullOfTheRequestOrOfAllItemsIsRetried) {
  FakeServer::Faults faults;
  faults.refuse = [](int nth) {
    return nth == 0 ? WireError(Reason::kQueueFull, "", "busy", 1) : v1::Status();
  };
  faults.refuse_item = [](int nth, int) {
    return nth == 1 ? WireError(Reason::kQueueFull, "items", "busy", 1) : v1::Status();
  };
  server_.SetFaults(faults);
  const auto stream = Open();
  RequestMaker maker({OneToken(kSequence, 0), OneToken(kSequence + 1, 0)});
  const Answer answer = stream->Attend(maker.request()).get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->FirstError().ok()) << answer->FirstError();
  EXPECT_EQ(server_.attends().size(), 3u);
  EXPECT_EQ(server_.attends()[0].append_tokens(1), server_.attends()[2].append_tokens(1));
}

TEST_F(StreamTest, ItemsThatFailedToTheLastAttemptAreReportedOneByOne) {
  FakeServer::Faults faults;
  faults.refuse_item = [](int, int) { return WireError(Reason::kNoPages, "items", "full", 1); };
  server_.SetFaults(faults);
  const auto stream = Open(2);
  RequestMaker maker({OneToken(kSequence, 0), OneToken(kSequence + 1, 0)});
  const Answer answer = stream->Attend(maker.request()).get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->items.size(), 2u);
  EXPECT_EQ(ReasonOf(answer->items[0].status), Reason::kNoPages);
  EXPECT_EQ(ReasonOf(answer->items[1].status), Reason::kNoPages);
  EXPECT_EQ(server_.attends().size(), 2u);
}

TEST_F(StreamTest, OneFailedItemIsNotRetriedWithItsNeighbours) {
  FakeServer::Faults faults;
  faults.refuse_item = [](int, int item) {
    return item == 1 ? WireError(Reason::kNoPages, "items[1]", "full", 7) : v1::Status();
  };
  server_.SetFaults(faults);
  const auto stream = Open();
  RequestMaker maker({OneToken(kSequence, 0), OneToken(kSequence + 1, 0)});
  const Answer answer = stream->Attend(maker.request()).get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->items[0].status.ok());
  EXPECT_EQ(RetryAfterMsOf(answer->items[1].status), 7u);
  EXPECT_EQ(server_.attends().size(), 1u);
}

TEST_F(StreamTest, CancelEndsAWaitingAndARunningRequest) {
  FakeServer::Faults faults;
  faults.hold = [](int) { return true; };
  server_.SetFaults(faults);
  const auto stream = Open(6, /*max_in_flight=*/1);
  std::promise<absl::Status> running, waiting;
  RequestMaker maker({OneToken(kSequence, 0)});
  const auto running_id =
      stream->Attend(maker.request(), [&](Answer answer) { running.set_value(answer.status()); });
  const auto waiting_id =
      stream->Attend(maker.request(), [&](Answer answer) { waiting.set_value(answer.status()); });
  EXPECT_EQ(stream->stats().in_flight, 1u);
  EXPECT_EQ(stream->stats().waiting, 1u);
  stream->Cancel(waiting_id);
  EXPECT_EQ(ReasonOf(waiting.get_future().get()), Reason::kCancelled);
  stream->Cancel(running_id);
  EXPECT_EQ(ReasonOf(running.get_future().get()), Reason::kCancelled);
  stream->Cancel(running_id);  // over: ignored
}

TEST_F(StreamTest, ATimeoutTravelsAndIsKeptLocallyWhenTheServerIsSilent) {
  FakeServer::Faults faults;
  faults.hold = [](int) { return true; };
  server_.SetFaults(faults);
  StreamOptions options;
  options.timeout_grace_ms = 10;
  const auto stream = client_->OpenStream(options);
  RequestMaker maker({OneToken(kSequence, 0)});
  CallOptions call;
  call.timeout_ms = 200;
  const Answer answer = stream->Attend(maker.request(), call).get();
  EXPECT_EQ(ReasonOf(answer.status()), Reason::kDeadline);
  ASSERT_GE(server_.stream_messages().size(), 1u);
  EXPECT_LE(server_.stream_messages()[0].timeout_us(), 200'000u);
  EXPECT_GT(server_.stream_messages()[0].timeout_us(), 0u);
}

TEST_F(StreamTest, ItsEndCancelsWhatIsUnanswered) {
  FakeServer::Faults faults;
  faults.hold = [](int) { return true; };
  server_.SetFaults(faults);
  auto stream = Open();
  RequestMaker maker({OneToken(kSequence, 0)});
  auto answer = stream->Attend(maker.request());
  stream.reset();
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(ReasonOf(answer.get().status()), Reason::kCancelled);
}

TEST_F(StreamTest, FlowAdviceBoundsWhatIsInFlight) {
  FakeServer::Faults faults;
  faults.flow = [](v1::Flow* flow) { flow->set_requests_allowed(2); };
  server_.SetFaults(faults);
  const auto stream = Open();
  RequestMaker first({OneToken(kSequence, 0)});
  ASSERT_TRUE(stream->Attend(first.request()).get().ok());
  std::vector<std::future<Answer>> answers;
  for (uint32_t i = 1; i < 50; ++i) {
    RequestMaker maker({OneToken(kSequence + i, 0)});
    answers.push_back(stream->Attend(maker.request()));
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(stream->stats().max_in_flight, 2u);
}

TEST_F(StreamTest, OnADrainingStreamNothingNewIsSentAndTheNextOneTakesOver) {
  std::atomic<int> answers_left{3};
  FakeServer::Faults faults;
  faults.flow = [&](v1::Flow* flow) { flow->set_draining(answers_left.fetch_sub(1) == 1); };
  server_.SetFaults(faults);
  const auto stream = Open(6, /*max_in_flight=*/1);
  for (uint32_t len = 0; len < 8; ++len) {
    RequestMaker maker({OneToken(kSequence, len)});
    const Answer answer = stream->Attend(maker.request()).get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->items[0].new_len, len + 1);
  }
  EXPECT_EQ(server_.num_streams(), 2);
}

TEST_F(StreamTest, LifecycleCallsTravelInTheStream) {
  const auto stream = Open();
  OpenRequest request;
  request.model = "m";
  request.owner = "o";
  request.num_sequences = 3;
  request.close_with_stream = true;
  const auto opened = stream->Open(request).get();
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ(opened->sequences.size(), 3u);
  const auto closed = stream->Close({*opened->sequences[0], *opened->sequences[1]}).get();
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ(closed->size(), 2u);
  EXPECT_TRUE(server_.stream_messages()[0].open().close_with_stream());
  EXPECT_EQ(server_.stream_messages()[1].close().sequence_ids_size(), 2);
  EXPECT_EQ(ReasonOf(stream->Truncate({{SequenceId(kSequence), 0}}).get().status()),
            Reason::kUnsupported);
}

}  // namespace
}  // namespace attn::client
