// Malformed AttendRequests: for each the code, the reason, the field, and what came and what is
// allowed in the message. The same request without the fault is accepted by the same context, and
// the good items of a request with a bad one stay good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "server/rpc/attend_codec.h"
#include "tests/rpc/codec_world.h"

namespace attn::test {
namespace {

using server::AttendCall;
using ::testing::HasSubstr;

struct Malformed {
  const char* name;
  // Spoils GoodAttend(world, 3); an item-level fault hits item 1 only.
  std::function<void(const CodecWorld&, v1::AttendRequest*)> spoil;
  Reason reason;
  const char* field;
  std::vector<const char*> in_message;
};

using Request = v1::AttendRequest;
using World = CodecWorld;

void SetEach(google::protobuf::RepeatedField<uint32_t>* values, std::vector<uint32_t> entries) {
  values->Assign(entries.begin(), entries.end());
}

std::vector<Malformed> RequestFaults() {
  return {
      {"no items",
       [](const World&, Request* r) { r->clear_sequence_ids(); },
       Reason::kInvalid,
       "sequence_ids",
       {"got 0", "want 1 to 8"}},
      {"too many items",
       [](const World& w, Request* r) {
         for (int i = 0; i < 9; ++i) r->add_sequence_ids(w.SmallId(50 + i));
       },
       Reason::kInvalid,
       "sequence_ids",
       {"got 12", "1 to 8", "max_items_per_request"}},
      {"two layers for three items",
       [](const World&, Request* r) { r->add_layers(1); },
       Reason::kInvalid,
       "layers",
       {"got 2 entries", "want 3"}},
      {"no q_lens",
       [](const World&, Request* r) { r->clear_q_lens(); },
       Reason::kInvalid,
       "q_lens",
       {"got 0 entries", "want 3 (one per item) or 1"}},
      {"two kv_new_lens",
       [](const World&, Request* r) {
         SetEach(r->mutable_kv_new_lens(), {1, 1});
       },
       Reason::kInvalid,
       "kv_new_lens",
       {"got 2 entries", "or 0"}},
      {"no expected_lens",
       [](const World&, Request* r) { r->clear_expected_lens(); },
       Reason::kInvalid,
       "expected_lens",
       {"got 0 entries", "want 3"}},
      {"no append_tokens",
       [](const World&, Request* r) { r->clear_append_tokens(); },
       Reason::kInvalid,
       "append_tokens",
       {"got 0 entries", "want 3"}},
      {"two flags",
       [](const World&, Request* r) {
         SetEach(r->mutable_flags(), {0, 0});
       },
       Reason::kInvalid,
       "flags",
       {"got 2 entries"}},
      {"four q_starts",
       [](const World&, Request* r) {
         SetEach(r->mutable_q_starts(), {0, 0, 0, 0});
       },
       Reason::kInvalid,
       "q_starts",
       {"got 4 entries"}},
      {"huge q_lens",
       [](const World&, Request* r) { SetEach(r->mutable_q_lens(), {4294967295u}); },
       Reason::kInvalid,
       "q_lens",
       {"got a sum of 12884901885", "at most 64"}},
      {"huge kv_new_lens",
       [](const World&, Request* r) { SetEach(r->mutable_kv_new_lens(), {4294967295u}); },
       Reason::kInvalid,
       "kv_new_lens",
       {"got a sum of 12884901885", "at most 64"}},
      {"q too short",
       [](const World&, Request* r) { r->mutable_q()->mutable_raw()->resize(5); },
       Reason::kInvalid,
       "q.raw",
       {"got 5 bytes", "want 384", "[3, 4, 8]", "float32"}},
      {"q missing",
       [](const World&, Request* r) { r->clear_q(); },
       Reason::kInvalid,
       "q",
       {"got none", "want [3, 4, 8]"}},
      {"k of another dtype",
       [](const World&, Request* r) { r->mutable_k()->set_dtype(v1::DATA_TYPE_BFLOAT16); },
       Reason::kInvalid,
       "k.dtype",
       {"got DATA_TYPE_BFLOAT16", "want DATA_TYPE_FLOAT32"}},
      {"k of an unknown dtype",
       [](const World&, Request* r) { r->mutable_k()->set_dtype(static_cast<v1::DataType>(99)); },
       Reason::kUnsupported,
       "k.dtype",
       {"got 99", "want DATA_TYPE_FLOAT32"}},
      {"v of another shape",
       [](const World&, Request* r) { r->mutable_v()->set_shape(1, 3); },
       Reason::kInvalid,
       "v.shape",
       {"got [3, 3, 8]", "want [3, 2, 8]"}},
      {"v of negative shape",
       [](const World&, Request* r) { r->mutable_v()->set_shape(0, -3); },
       Reason::kInvalid,
       "v.shape",
       {"got [-3, 2, 8]"}},
      {"v with nowhere the data",
       [](const World&, Request* r) { r->mutable_v()->clear_raw(); },
       Reason::kInvalid,
       "v.data",
       {"got none set", "raw with 192 bytes"}},
      {"unknown tensor slot",
       [](const World&, Request* r) {
         r->mutable_q()->GetReflection()->MutableUnknownFields(r->mutable_q())->AddVarint(9, 1);
       },
       Reason::kUnsupported,
       "q.9",
       {"field number 9"}},
      {"unknown field",
       [](const World&, Request* r) {
         r->GetReflection()->MutableUnknownFields(r)->AddVarint(22, 1);
       },
       Reason::kUnsupported,
       "attend.22",
       {"field number 22", "1000"}},
      {"unknown priority",
       [](const World&, Request* r) { r->set_priority(static_cast<v1::Priority>(7)); },
       Reason::kUnsupported,
       "priority",
       {"got 7", "0 to 3"}},
      {"integer output",
       [](const World&, Request* r) { r->set_out_dtype(v1::DATA_TYPE_INT8); },
       Reason::kUnsupported,
       "out_dtype",
       {"got DATA_TYPE_INT8", "DATA_TYPE_FLOAT32"}},
      {"kv_begins",
       [](const World&, Request* r) { r->add_kv_begins(0); },
       Reason::kUnsupported,
       "kv_begins",
       {"does not have the feature"}},
      {"kv_ends",
       [](const World&, Request* r) { r->add_kv_ends(4); },
       Reason::kUnsupported,
       "kv_ends",
       {"does not have the feature"}},
      {"row_kv_ends",
       [](const World&, Request* r) { r->add_row_kv_ends(4); },
       Reason::kUnsupported,
       "row_kv_ends",
       {"does not have the feature"}},
      {"mask_tail_lens",
       [](const World&, Request* r) { r->add_mask_tail_lens(4); },
       Reason::kUnsupported,
       "mask_tail_lens",
       {"does not have the feature"}},
      {"mask",
       [](const World&, Request* r) { r->mutable_mask(); },
       Reason::kUnsupported,
       "mask",
       {"does not have the feature"}},
      {"items of other geometry",
       [](const World& w, Request* r) {
         SetEach(r->mutable_layers(), {0, 1, 0});
         r->set_sequence_ids(1, w.MixedId(1));
       },
       Reason::kInvalid,
       "layers[1]",
       {"4/4 heads", "item 0", "4/2 heads", "two requests"}},
  };
}

std::vector<Malformed> ItemFaults() {
  const auto with_flags = [](uint32_t flags) {
    return [flags](const World&, Request* r) { SetEach(r->mutable_flags(), {0, flags, 0}); };
  };
  // Item 1 appends nothing and takes its row of k and v with it.
  const auto without_append = [](uint32_t q_len, uint32_t flags) {
    return [q_len, flags](const World&, Request* r) {
      SetEach(r->mutable_q_lens(), {1, q_len, 1});
      SetEach(r->mutable_kv_new_lens(), {1, 0, 1});
      SetEach(r->mutable_flags(), {0, flags, 0});
      FillTensor(2 + q_len, World::kQHeads, r->mutable_q());
      FillTensor(2, World::kKvHeads, r->mutable_k());
      FillTensor(2, World::kKvHeads, r->mutable_v());
    };
  };
  return {
      {"sequence 0",
       [](const World&, Request* r) { r->set_sequence_ids(1, 0); },
       Reason::kInvalid,
       "sequence_ids[1]",
       {"got 0", "2^48"}},
      {"alias outside a stream",
       [](const World&, Request* r) { r->set_sequence_ids(1, 17); },
       Reason::kInvalid,
       "sequence_ids[1]",
       {"alias 17", "stream"}},
      {"id below 2^48",
       [](const World&, Request* r) { r->set_sequence_ids(1, uint64_t{1} << 40); },
       Reason::kUnknownSequence,
       "sequence_ids[1]",
       {"got 1099511627776"}},
      {"id of no model",
       [](const World&, Request* r) {
         r->set_sequence_ids(1, MakeSequenceId(ModelSlot(9), 4).value);
       },
       Reason::kUnknownSequence,
       "sequence_ids[1]",
       {"declared model"}},
      {"layer out of range",
       [](const World&, Request* r) {
         SetEach(r->mutable_layers(), {0, 2, 0});
       },
       Reason::kInvalid,
       "layers[1]",
       {"got 2", "want 0 to 1", "small"}},
      {"largest layer",
       [](const World&, Request* r) {
         SetEach(r->mutable_layers(), {0, 4294967295u, 0});
       },
       Reason::kInvalid,
       "layers[1]",
       {"got 4294967295"}},
      {"unknown flag", with_flags(16), Reason::kUnsupported, "flags[1]", {"got 16", "bits of 15"}},
      {"rewind without append",
       without_append(1, v1::ITEM_FLAG_REWIND),
       Reason::kInvalid,
       "flags[1]",
       {"got 4", "REWIND"}},
      {"append after without append",
       without_append(1, v1::ITEM_FLAG_APPEND_AFTER),
       Reason::kInvalid,
       "flags[1]",
       {"got 2", "APPEND_AFTER"}},
      {"both lengths 0",
       without_append(0, 0),
       Reason::kInvalid,
       "q_lens[1]",
       {"got 0", "kv_new_len 0"}},
      {"append token 0",
       [](const World&, Request* r) { r->set_append_tokens(1, 0); },
       Reason::kInvalid,
       "append_tokens[1]",
       {"got 0", "other than 0"}},
      {"longer than the longest sequence",
       [](const World&, Request* r) {
         SetEach(r->mutable_expected_lens(), {3, 1000, 3});
       },
       Reason::kInvalid,
       "expected_lens[1]",
       {"got 1000", "kv_new_len 1", "at most 1000"}},
      {"largest expected_len",
       [](const World&, Request* r) {
         SetEach(r->mutable_expected_lens(), {3, 4294967295u, 3});
       },
       Reason::kInvalid,
       "expected_lens[1]",
       {"got 4294967295", "at most 1000"}},
  };
}

void ExpectError(const absl::Status& status, const Malformed& fault) {
  EXPECT_EQ(status.code(), CodeOf(fault.reason));
  EXPECT_EQ(ReasonOf(status), fault.reason) << status;
  EXPECT_EQ(FieldOf(status), fault.field);
  for (const char* part : fault.in_message) EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(MalformedAttendTest, AFaultOfTheRequestIsNamedAndTheNextGoodRequestIsAccepted) {
  const CodecWorld world;
  for (const Malformed& fault : RequestFaults()) {
    SCOPED_TRACE(fault.name);
    Request request = GoodAttend(world, 3);
    fault.spoil(world, &request);
    const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());
    EXPECT_FALSE(call.ok());
    ExpectError(call.status(), fault);
    Request good = GoodAttend(world, 3);
    EXPECT_TRUE(DecodeAttend(&good, world.Unary()).ok());
  }
}

TEST(MalformedAttendTest, AFaultOfAnItemLeavesItsNeighboursAlone) {
  const CodecWorld world;
  for (const Malformed& fault : ItemFaults()) {
    SCOPED_TRACE(fault.name);
    Request request = GoodAttend(world, 3);
    fault.spoil(world, &request);
    const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());
    ASSERT_TRUE(call.ok()) << call.status();
    ASSERT_EQ(call->items.size(), 3u);
    EXPECT_TRUE(call->items[0].refused.ok()) << call->items[0].refused;
    EXPECT_TRUE(call->items[2].refused.ok()) << call->items[2].refused;
    EXPECT_FALSE(call->items[1].refused.ok());
    ExpectError(call->items[1].refused, fault);
  }
}

TEST(MalformedAttendTest, AnAnswerThatWouldBeTooLargeIsRefusedBeforeItIsMade) {
  CodecWorld world;
  world.limits.max_message_bytes = 383;  // three rows of [4, 8] fp32 are 384 bytes
  Request request = GoodAttend(world, 3);
  const absl::StatusOr<AttendCall> call = DecodeAttend(&request, world.Unary());
  EXPECT_EQ(FieldOf(call.status()), "q_lens");
  EXPECT_THAT(call.status().message(), HasSubstr("384 bytes, want at most 383"));
}

}  // namespace
}  // namespace attn::test
