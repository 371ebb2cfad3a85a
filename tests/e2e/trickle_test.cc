// Messages that arrive in the smallest pieces: byte by byte, or in HTTP/2 frames of one byte. They
// are answered right and hold up no other client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>

#include "attn/client/client.h"
#include "tests/e2e/test_server.h"
#include "tests/e2e/trickle_proxy.h"
#include "tests/support/process_memory.h"

namespace attn::test {
namespace {

using Answer = absl::StatusOr<client::AttendResult>;

// The request of one Step. Its tensors are the step's.
client::AttendRequest ClientRequest(const Step& step) {
  client::AttendRequest request;
  request.items.push_back(
      {.sequence = SequenceId(step.sequence),
       .layer = step.layer,
       .expected_len = step.expected_len,
       .q_len = static_cast<uint32_t>(step.q.size() / (kQHeads * kHeadDim)),
       .kv_new_len = static_cast<uint32_t>(step.k.size() / (kKvHeads * kHeadDim)),
       .append_token = step.token});
  request.q = client::BytesOf(step.q);
  request.k = client::BytesOf(step.k);
  request.v = client::BytesOf(step.v);
  return request;
}

class TrickleTest : public ::testing::Test {
 protected:
  void ConnectThrough(TrickleProxy::Cut cut) {
    proxy_ = std::make_unique<TrickleProxy>(server_.server().port(), cut);
    auto client = client::Client::Connect(proxy_->address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // A prefill of 60 rows, 30 KiB, of which the end does not arrive until another client has had
  // 100 answers.
  void ExpectAnswered(
      const std::function<std::future<Answer>(const client::AttendRequest&)>& send) {
    PlainLayer kv;
    const Step prefill = AppendStep(random_, server_.OpenOne(), 0, 60, &kv);
    proxy_->HoldBefore(proxy_->num_pieces() + 30'000);
    std::future<Answer> pending = send(ClientRequest(prefill));
    PlainLayer other;
    const uint64_t id = server_.OpenOne("other");
    for (int i = 0; i < 100; ++i) {
      const int64_t before = other.len();
      const Step step = AppendStep(random_, id, 0, 1, &other);
      const v1::AttendResponse response = server_.Attend(MakeRequest({step}));
      ExpectNear(Floats(response.out()),
                 PlainAttend(other, step.q, {.q_start = before, .kv_end = before + 1}));
    }
    EXPECT_EQ(pending.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    proxy_->Release();
    ExpectOut(pending.get(), PlainAttend(kv, prefill.q, {.kv_end = 60}));
  }

  void ExpectOut(const Answer& answer, const Rows& want) {
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_TRUE(answer->FirstError().ok()) << answer->FirstError();
    v1::Tensor out;
    out.set_raw(answer->out);
    ExpectNear(Floats(out), want);
  }

  TestServer server_;
  Random random_{81};
  std::unique_ptr<TrickleProxy> proxy_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(TrickleTest, AnAttendThatComesByteByByteIsAnsweredRightAndHoldsUpNobody) {
  ConnectThrough(TrickleProxy::Cut::kBytes);
  ExpectAnswered([this](const client::AttendRequest& request) {
    return std::async(std::launch::async, [this, request] { return client_->Attend(request); });
  });
  EXPECT_GT(proxy_->num_pieces(), 30'000u);
}

// A client that gave up its attempts early would never reach a server that is that busy.
TEST_F(TrickleTest, AClientWaitsForAHandshakeThatTakesLong) {
  proxy_ = std::make_unique<TrickleProxy>(server_.server().port(), TrickleProxy::Cut::kBytes);
  proxy_->HoldConnections();
  auto connecting =
      std::async(std::launch::async, [this] { return client::Client::Connect(proxy_->address()); });
  EXPECT_EQ(connecting.wait_for(std::chrono::seconds(1)), std::future_status::timeout);
  proxy_->Release();
  const auto client = connecting.get();
  EXPECT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(proxy_->num_connections(), 1u);
}

TEST_F(TrickleTest, AStreamThatComesByteByByteIsAnsweredRightAndHoldsUpNobody) {
  ConnectThrough(TrickleProxy::Cut::kBytes);
  const auto stream = client_->OpenStream();
  const uint64_t id = server_.OpenOne("decode");
  PlainLayer kv;
  std::vector<std::future<Answer>> answers;
  std::vector<Rows> want;
  for (int i = 0; i < 20; ++i) {
    const int64_t before = kv.len();
    const Step step = AppendStep(random_, id, 0, 1, &kv);
    answers.push_back(stream->Attend(ClientRequest(step)));
    want.push_back(PlainAttend(kv, step.q, {.q_start = before, .kv_end = before + 1}));
  }
  for (size_t i = 0; i < answers.size(); ++i) ExpectOut(answers[i].get(), want[i]);
  ExpectAnswered(
      [&stream](const client::AttendRequest& request) { return stream->Attend(request); });
  EXPECT_EQ(stream->stats().repeats, 0u);
}

// gRPC keeps a list of the frames of a message until it is whole, and no option bounds it: about a
// hundred bytes for a frame of one byte. What we can hold it to is that it stays in this
// proportion, that the answer is right, and that nobody else waits.
TEST_F(TrickleTest, AMessageInFramesOfOneByteIsAnsweredRightAndHoldsUpNobody) {
  ConnectThrough(TrickleProxy::Cut::kDataFrames);
  ExpectAnswered([this](const client::AttendRequest& request) {
    return std::async(std::launch::async, [this, request] { return client_->Attend(request); });
  });
  constexpr uint32_t kTokens = 8'000;
  constexpr int64_t kMessageBytes = int64_t{kTokens} * 2 * kKvHeads * kHeadDim * sizeof(float);
  PlainLayer kv;
  Step append = AppendStep(random_, server_.OpenOne(), 0, kTokens, &kv);
  append.q.clear();
  const MemoryMark mark;
  const Answer appended = client_->Attend(ClientRequest(append));
  ASSERT_TRUE(appended.ok()) << appended.status();
  EXPECT_EQ(appended->items[0].new_len, kTokens) << appended->FirstError();
  EXPECT_GE(proxy_->num_pieces(), static_cast<uint64_t>(kMessageBytes));
  EXPECT_LT(mark.growth(), 160 * kMessageBytes);
  const Step read{.sequence = append.sequence, .q = RandomRows(random_, 1, kQHeads)};
  ExpectOut(client_->Attend(ClientRequest(read)),
            PlainAttend(kv, read.q, {.q_start = kTokens - 1, .kv_end = kTokens}));
}

}  // namespace
}  // namespace attn::test
