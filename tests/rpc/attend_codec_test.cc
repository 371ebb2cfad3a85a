// What a well-formed AttendRequest becomes, and how results are encoded.
#include "server/rpc/attend_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attn/base/error.h"
#include "tests/rpc/codec_world.h"

namespace attn::test {
namespace {

using server::AttendCall;
using server::AttendResult;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(AttendCodecTest, FillsEveryItemAndMovesTheTensors) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 3);
  request.add_q_starts(2);
  request.add_flags(v1::ITEM_FLAG_REWIND);
  request.set_priority(v1::PRIORITY_INTERACTIVE);
  request.set_return_lse(true);
  const std::string q = request.q().raw();
  const char* const q_bytes = request.q().raw().data();

  const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());

  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_THAT(call->items, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const server::AttendItem& item = call->items[i];
    EXPECT_TRUE(item.refused.ok()) << item.refused;
    EXPECT_EQ(item.sequence.value, world.SmallId(i + 1));
    EXPECT_EQ(item.model->definition.name, "small");
    EXPECT_EQ(item.expected_len, 3u);
    EXPECT_EQ(item.append_token, 1000u + i);
    EXPECT_EQ(item.q_row, i);
    EXPECT_EQ(item.kv_row, i);
    EXPECT_EQ(item.q_start, 2u);
    EXPECT_EQ(item.flags, static_cast<uint32_t>(server::kItemRewind));
  }
  EXPECT_EQ(call->total_q, 3);
  EXPECT_EQ(call->num_q_heads, CodecWorld::kQHeads);
  EXPECT_EQ(call->num_kv_heads, CodecWorld::kKvHeads);
  EXPECT_EQ(call->priority, server::Priority::kInteractive);
  EXPECT_TRUE(call->return_lse);
  EXPECT_EQ(call->out_dtype, DType::kFloat32);
  EXPECT_EQ(call->q, q);
  EXPECT_EQ(call->q.data(), q_bytes) << "the tensor was copied";
}

TEST(AttendCodecTest, RowsFollowTheLengthsOfEachItem) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 3);
  request.clear_q_lens();
  for (const uint32_t len : {2u, 0u, 5u}) request.add_q_lens(len);
  request.clear_kv_new_lens();
  for (const uint32_t len : {0u, 4u, 1u}) request.add_kv_new_lens(len);
  FillTensor(7, CodecWorld::kQHeads, request.mutable_q());
  FillTensor(5, CodecWorld::kKvHeads, request.mutable_k());
  FillTensor(5, CodecWorld::kKvHeads, request.mutable_v());

  const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());

  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->items[0].q_row, 0);
  EXPECT_EQ(call->items[1].q_row, 2);
  EXPECT_EQ(call->items[2].q_row, 2);
  EXPECT_EQ(call->items[1].kv_row, 0);
  EXPECT_EQ(call->items[2].kv_row, 4);
  EXPECT_EQ(call->items[0].expected_len, 0u) << "ignored for items that append nothing";
  EXPECT_FALSE(call->items[2].q_start.has_value());
}

TEST(AttendCodecTest, AStaleEpochFailsEveryItemAndNotTheRequest) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 2);
  request.set_server_epoch(CodecWorld::kEpoch + 1);

  const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());

  ASSERT_TRUE(call.ok()) << call.status();
  for (const server::AttendItem& item : call->items) {
    EXPECT_EQ(ReasonOf(item.refused), Reason::kStaleSequence);
    EXPECT_EQ(FieldOf(item.refused), "server_epoch");
  }
  EXPECT_THAT(call->q, IsEmpty());
}

TEST(AttendCodecTest, UnknownHintFieldsFrom1000OnAreIgnored) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 1);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1000, 5);
  EXPECT_TRUE(DecodeAttend(&request, world.Unary()).ok());
}

TEST(AttendCodecTest, ReadOnlyItemsMayShareASequenceAndLayer) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 2);
  request.set_sequence_ids(1, request.sequence_ids(0));
  request.clear_kv_new_lens();
  request.clear_append_tokens();
  request.clear_expected_lens();
  request.clear_k();
  request.clear_v();
  EXPECT_TRUE(DecodeAttend(&request, world.Unary()).ok());
}

TEST(AttendCodecTest, TensorsWithoutAShapeAreTakenByTheirSize) {
  CodecWorld world;
  v1::AttendRequest request = GoodAttend(world, 2);
  request.mutable_q()->clear_shape();
  EXPECT_TRUE(DecodeAttend(&request, world.Unary()).ok());
}

AttendResult ResultOf(size_t num_items) {
  AttendResult result;
  result.items.resize(num_items);
  for (size_t i = 0; i < num_items; ++i) result.items[i].new_len = static_cast<uint32_t>(10 + i);
  return result;
}

AttendCall CallOf(int64_t total_q) {
  AttendCall call;
  call.total_q = total_q;
  call.num_q_heads = 4;
  call.head_dim_v = 8;
  return call;
}

TEST(AttendCodecTest, AnAnswerWithoutFailuresHasNoReasons) {
  AttendResult result = ResultOf(2);
  result.out = std::string(2 * 4 * 8 * 4, 'x');
  v1::AttendResponse response;
  EncodeAttend(CallOf(2), &result, &response);
  EXPECT_THAT(response.item_reasons(), IsEmpty());
  EXPECT_THAT(response.item_replayed(), IsEmpty());
  EXPECT_THAT(response.errors(), IsEmpty());
  EXPECT_THAT(response.new_lens(), ElementsAre(10, 11));
  EXPECT_THAT(response.out().shape(), ElementsAre(2, 4, 8));
  EXPECT_EQ(response.out().dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(response.out().raw().size(), 2u * 4 * 8 * 4);
  EXPECT_FALSE(response.has_lse());
}

TEST(AttendCodecTest, AFailedItemHasItsReasonAndItsError) {
  AttendResult result = ResultOf(3);
  result.items[1].status = MakeError(Reason::kLengthMismatch, "expected_lens[1]", "got 5, want 7");
  result.items[2].replayed = true;
  v1::AttendResponse response;
  EncodeAttend(CallOf(0), &result, &response);
  EXPECT_THAT(response.item_reasons(),
              ElementsAre(v1::REASON_OK, v1::REASON_LENGTH_MISMATCH, v1::REASON_OK));
  EXPECT_THAT(response.item_replayed(), ElementsAre(false, false, true));
  ASSERT_THAT(response.errors(), SizeIs(1));
  EXPECT_EQ(response.errors(0).item(), 1u);
  EXPECT_EQ(response.errors(0).status().code(), 9);
  EXPECT_EQ(response.errors(0).status().field(), "expected_lens[1]");
  EXPECT_EQ(response.errors(0).status().message(), "expected_lens[1]: got 5, want 7");
}

}  // namespace
}  // namespace attn::test
