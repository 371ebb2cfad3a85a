// Requests larger than the server's limits: what parts they go in, and that the parts add up.
#include "client/src/attend_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attn/base/error.h"
#include "attn/client/client.h"
#include "tests/client/fake_server.h"
#include "tests/client/request_maker.h"

namespace attn::client {
namespace {

constexpr uint64_t kSequence = (uint64_t{1} << 48) + 5;
constexpr size_t kRowBytes = RequestMaker::kDim * sizeof(float);

AttendItem Prefill(uint64_t sequence, uint32_t len, uint32_t rows) {
  AttendItem item = OneToken(sequence, len);
  item.q_len = item.kv_new_len = rows;
  return item;
}

Limits SmallLimits() {
  Limits limits;
  limits.max_message_bytes = 16 << 10;
  limits.max_items_per_request = 100;
  limits.max_q_rows_per_request = 1 << 20;
  return limits;
}

// Every part within the limits, and the pieces of q, k and v in order and complete.
void ExpectParts(const std::vector<AttendPart>& parts, const AttendRequest& request,
                 const Limits& limits) {
  std::string q, k, v;
  const auto append = [](absl::Span<const std::byte> bytes, std::string* text) {
    text->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const AttendPart& part : parts) {
    EXPECT_LE(part.q.size() + part.k.size() + part.v.size(), limits.max_message_bytes);
    EXPECT_LE(part.items.size(), limits.max_items_per_request);
    append(part.q, &q);
    append(part.k, &k);
    append(part.v, &v);
  }
  const auto text = [&](absl::Span<const std::byte> bytes) {
    std::string all;
    append(bytes, &all);
    return all;
  };
  EXPECT_EQ(q, text(request.q));
  EXPECT_EQ(k, text(request.k));
  EXPECT_EQ(v, text(request.v));
}

TEST(AttendSplitTest, ARequestWithinTheLimitsIsOnePart) {
  RequestMaker maker({OneToken(kSequence, 3), OneToken(kSequence + 1, 4)});
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_FALSE(parts->front().is_piece);
}

TEST(AttendSplitTest, ManyItemsArePackedInOrder) {
  std::vector<AttendItem> items;
  for (uint64_t i = 0; i < 10'000; ++i) items.push_back(OneToken(kSequence + i, 0));
  RequestMaker maker(items);
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ExpectParts(*parts, maker.request(), SmallLimits());
  size_t next = 0;
  for (const AttendPart& part : *parts) {
    EXPECT_EQ(part.first_item, next);
    for (const AttendItem& item : part.items) EXPECT_EQ(item.sequence.value, kSequence + next++);
  }
  EXPECT_EQ(next, items.size());
}

TEST(AttendSplitTest, ALongPrefillIsCutIntoAppendsThatFollowEachOther) {
  AttendItem item = Prefill(kSequence, 7, 5000);
  item.flags = kRewind;
  item.append_token = 99;
  RequestMaker maker({item});
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ExpectParts(*parts, maker.request(), SmallLimits());
  uint32_t len = 7;
  std::set<uint64_t> tokens;
  for (const AttendPart& part : *parts) {
    ASSERT_EQ(part.items.size(), 1u);
    EXPECT_TRUE(part.is_piece);
    EXPECT_EQ(part.items[0].expected_len, len);
    EXPECT_EQ(part.items[0].q_len, part.items[0].kv_new_len);
    EXPECT_EQ(part.items[0].flags, len == 7 ? kRewind : 0u);
    len += part.items[0].kv_new_len;
    tokens.insert(part.items[0].append_token);
  }
  EXPECT_EQ(len, 5007u);
  EXPECT_EQ(tokens.size(), parts->size());
  EXPECT_FALSE(tokens.contains(0));
  const auto again = SplitRequest(maker.request(), SmallLimits());
  EXPECT_EQ(again->back().items[0].append_token, parts->back().items[0].append_token)
      << "a repeat must be recognised";
}

TEST(AttendSplitTest, ANonCausalItemAppendsEverythingBeforeItsFirstRow) {
  AttendItem item = Prefill(kSequence, 0, 2000);
  item.flags = kNonCausal | kNoSinkLogits;
  RequestMaker maker({item});
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ExpectParts(*parts, maker.request(), SmallLimits());
  uint32_t appended = 0, next_row = 0;
  for (const AttendPart& part : *parts) {
    const AttendItem& piece = part.items[0];
    if (piece.kv_new_len > 0) {
      EXPECT_EQ(piece.q_len, 0u);
      EXPECT_EQ(next_row, 0u);
      EXPECT_EQ(piece.expected_len, appended);
      appended += piece.kv_new_len;
    } else {
      EXPECT_EQ(appended, 2000u);
      EXPECT_EQ(piece.q_start, next_row);
      EXPECT_EQ(piece.flags, static_cast<uint32_t>(kNonCausal | kNoSinkLogits));
      next_row += piece.q_len;
    }
  }
  EXPECT_EQ(next_row, 2000u);
}

TEST(AttendSplitTest, AppendAfterAttendsBeforeItAppends) {
  AttendItem item = Prefill(kSequence, 100, 2000);
  item.flags = kAppendAfter;
  RequestMaker maker({item});
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ExpectParts(*parts, maker.request(), SmallLimits());
  EXPECT_EQ(parts->front().items[0].kv_new_len, 0u);
  EXPECT_EQ(parts->front().items[0].q_start, 100u);
  EXPECT_EQ(parts->back().items[0].q_len, 0u);
}

TEST(AttendSplitTest, AnItemWhosePositionIsUnknownCannotBeCut) {
  AttendItem item = Prefill(kSequence, 0, 2000);
  item.kv_new_len = 0;
  RequestMaker maker({item});
  const auto parts = SplitRequest(maker.request(), SmallLimits());
  EXPECT_EQ(ReasonOf(parts.status()), Reason::kInvalid);
  EXPECT_EQ(FieldOf(parts.status()), "items[0].q_start");
}

class SplitOnTheWireTest : public testing::Test {
 protected:
  SplitOnTheWireTest() {
    v1::Limits limits;
    limits.set_max_message_bytes(16 << 10);
    limits.set_max_items_per_request(100);
    limits.set_max_q_rows_per_request(1 << 20);
    server_.SetLimits(limits);
    auto client = Client::Connect(server_.target());
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
};

TEST_F(SplitOnTheWireTest, APrefillLargerThanAMessageArrivesInPartsAndIsAnsweredOnce) {
  RequestMaker unary({Prefill(kSequence, 0, 5000), OneToken(kSequence + 1, 0)});
  const auto result = client_->Attend(unary.request());
  ASSERT_TRUE(result.ok()) << result.status();
  RequestMaker streamed({OneToken(kSequence + 2, 0), Prefill(kSequence + 3, 0, 5000)});
  const auto answer = client_->OpenStream()->Attend(streamed.request()).get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(result->out, unary.out());
  EXPECT_EQ(answer->out, streamed.out());
  ASSERT_EQ(answer->items.size(), 2u);
  EXPECT_EQ(answer->items[1].new_len, 5000u);
  EXPECT_EQ(server_.LengthOf(kSequence, 0), 5000u);
  EXPECT_LE(server_.max_message_bytes_seen(), size_t{16} << 10);
  EXPECT_GE(server_.attends().size(), 2 * 5000 * 3 * kRowBytes / (16 << 10));
}

TEST_F(SplitOnTheWireTest, APieceThatFailsEndsTheRequestWithItsError) {
  FakeServer::Faults faults;
  faults.refuse_item = [](int nth, int) {
    return nth == 2 ? WireError(Reason::kTooLarge, "items[0]", "never fits") : v1::Status();
  };
  server_.SetFaults(faults);
  RequestMaker maker({Prefill(kSequence, 0, 5000)});
  const auto stream = client_->OpenStream();
  EXPECT_EQ(ReasonOf(stream->Attend(maker.request()).get().status()), Reason::kTooLarge);
  EXPECT_EQ(server_.attends().size(), 3u);
}

TEST_F(SplitOnTheWireTest, ALostConnectionRepeatsOnePartOnly) {
  FakeServer::Faults faults;
  faults.drop_answer = [](int nth) { return nth == 5; };
  server_.SetFaults(faults);
  RequestMaker maker({Prefill(kSequence, 0, 5000)});
  const auto stream = client_->OpenStream();
  const auto answer = stream->Attend(maker.request()).get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->out, maker.out());
  EXPECT_TRUE(answer->items[0].replayed);
  EXPECT_EQ(server_.LengthOf(kSequence, 0), 5000u);
  EXPECT_EQ(stream->stats().repeats, 1u);
}

}  // namespace
}  // namespace attn::client
