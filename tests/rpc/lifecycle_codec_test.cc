// Requests that open, fork, reorder, truncate, close, describe and renew: what they become, and
// what is refused by name.
#include "server/rpc/lifecycle_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "attn/base/error.h"
#include "server/rpc/status_codec.h"
#include "tests/rpc/codec_world.h"

namespace attn::test {
namespace {

using server::Decoded;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

v1::OpenSequencesRequest GoodOpen(uint32_t num_items) {
  v1::OpenSequencesRequest request;
  request.set_model("small");
  request.set_owner("me");
  for (uint32_t i = 0; i < num_items; ++i) request.add_items();
  return request;
}

void ExpectRefused(const absl::Status& status, Reason reason, const std::string& field,
                   const std::string& part) {
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_EQ(FieldOf(status), field);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(LifecycleCodecTest, OpenTakesModelOwnerLeaseAndItems) {
  CodecWorld world;
  v1::OpenSequencesRequest request = GoodOpen(2);
  request.set_lease_ms(5000);
  request.set_request_key(9);
  request.mutable_items(1)->set_priority(v1::PRIORITY_BATCH);
  const absl::StatusOr<Decoded> decoded = DecodeOpen(request, world.Unary());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<server::OpenCall>(decoded->request);
  EXPECT_EQ(call.model->definition.name, "small");
  EXPECT_EQ(call.owner, "me");
  EXPECT_EQ(call.lease, 5 * kSecond);
  EXPECT_EQ(call.request_key, 9u);
  ASSERT_THAT(call.items, SizeIs(2));
  EXPECT_EQ(call.items[1].priority, server::Priority::kBatch);
}

TEST(LifecycleCodecTest, OpenRefusesWhatItCannotTake) {
  CodecWorld world;
  const auto refusal = [&world](auto spoil) {
    v1::OpenSequencesRequest request = GoodOpen(1);
    spoil(&request);
    return DecodeOpen(request, world.Unary()).status();
  };
  using Open = v1::OpenSequencesRequest;
  ExpectRefused(refusal([](Open* r) { r->set_model("none"); }), Reason::kUnknownModel, "model",
                "got \"none\"");
  ExpectRefused(refusal([](Open* r) { r->clear_owner(); }), Reason::kInvalid, "owner",
                "got 0 bytes, want 1 to 256");
  ExpectRefused(refusal([](Open* r) { r->set_owner(std::string(257, 'o')); }), Reason::kInvalid,
                "owner", "got 257 bytes");
  ExpectRefused(refusal([](Open* r) { r->set_lease_ms(4294967295u); }), Reason::kInvalid,
                "lease_ms", "got 4294967295, want 0 or 1000 to 3600000");
  ExpectRefused(refusal([](Open* r) { r->set_lease_ms(1); }), Reason::kInvalid, "lease_ms",
                "got 1,");
  ExpectRefused(refusal([](Open* r) { r->set_model_fingerprint("abc"); }), Reason::kInvalid,
                "model_fingerprint", "got 3 bytes");
  ExpectRefused(refusal([](Open* r) { r->set_close_with_stream(true); }), Reason::kInvalid,
                "close_with_stream", "got true");
  ExpectRefused(refusal([](Open* r) { r->clear_items(); }), Reason::kInvalid, "items",
                "got 0 entries, want 1 to 8");
  ExpectRefused(refusal([](Open* r) {
                  v1::OpenSequencesRequest::Item* item = r->mutable_items(0);
                  item->GetReflection()->MutableUnknownFields(item)->AddVarint(5, 1);
                }),
                Reason::kUnsupported, "items[0].5", "field number 5");
}

// A cut character would make the whole status unreadable for the client.
TEST(LifecycleCodecTest, ALongNameIsQuotedUpToTheEndOfACharacter) {
  CodecWorld world;
  for (const char* start : {"", "x", "xy", "xyz"}) {
    v1::OpenSequencesRequest request;
    std::string name = start;
    for (int i = 0; i < 50; ++i) name += "\xe2\x82\xac";  // three bytes each
    request.set_model(name);
    request.set_owner("me");
    request.add_items();
    v1::Status sent, received;
    server::EncodeStatus(DecodeOpen(request, world.Unary()).status(), &sent);
    ASSERT_TRUE(received.ParseFromString(sent.SerializeAsString())) << sent.message();
    EXPECT_EQ(received.reason(), v1::REASON_UNKNOWN_MODEL);
    EXPECT_THAT(received.message(), ::testing::HasSubstr(name.substr(0, 120)));
  }
}

TEST(LifecycleCodecTest, AMillionEmptyItemsAreRefusedByTheirCount) {
  CodecWorld world;
  ExpectRefused(DecodeOpen(GoodOpen(1'000'000), world.Unary()).status(), Reason::kInvalid, "items",
                "got 1000000 entries, want 1 to 8");
}

TEST(LifecycleCodecTest, AnOpenItemAtFaultIsKeptApartAndPutBackInTheAnswer) {
  CodecWorld world;
  v1::OpenSequencesRequest request = GoodOpen(3);
  request.mutable_items(0)->set_alias(4);  // no aliases outside a stream
  request.mutable_items(2)->set_max_len_hint(4294967295u);
  const absl::StatusOr<Decoded> decoded = DecodeOpen(request, world.Unary());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<server::OpenCall>(decoded->request);
  ASSERT_THAT(call.items, SizeIs(1));
  ASSERT_THAT(decoded->refused, SizeIs(2));
  ExpectRefused(decoded->refused[0].status, Reason::kInvalid, "items[0].alias", "got 4, want 0");
  ExpectRefused(decoded->refused[1].status, Reason::kTooLarge, "items[2].max_len_hint",
                "got 4294967295, want at most 1000");

  server::OpenResult result;
  result.items.push_back(SequenceId(42));
  v1::OpenSequencesResponse response;
  EncodeOpen(call, result, decoded->refused, CodecWorld::kEpoch, &response);
  EXPECT_THAT(response.sequence_ids(), ElementsAre(0, 42, 0));
  ASSERT_THAT(response.errors(), SizeIs(2));
  EXPECT_EQ(response.errors(0).item(), 0u);
  EXPECT_EQ(response.errors(1).item(), 2u);
  EXPECT_EQ(response.lease_ms(), 30'000u);
  EXPECT_EQ(response.server_epoch(), CodecWorld::kEpoch);
}

TEST(LifecycleCodecTest, AliasesNameTheModelOfTheirLatestOpen) {
  CodecWorld world;
  v1::OpenSequencesRequest request = GoodOpen(1);
  request.mutable_items(0)->set_alias(4);
  ASSERT_TRUE(DecodeOpen(request, world.InStream()).ok());
  EXPECT_EQ(*world.aliases.Find(4), ModelSlot(1));
  request.set_model("mixed");
  ASSERT_TRUE(DecodeOpen(request, world.InStream()).ok());
  EXPECT_EQ(*world.aliases.Find(4), ModelSlot(2));
}

TEST(LifecycleCodecTest, ItemsOnTheAliasOfARefusedOpenAreSkipped) {
  CodecWorld world;
  v1::OpenSequencesRequest open = GoodOpen(1);
  open.mutable_items(0)->set_alias(4);
  open.set_model("none");
  ASSERT_FALSE(DecodeOpen(open, world.InStream()).ok());
  v1::TruncateSequencesRequest request;
  request.add_items()->set_sequence_id(4);
  const absl::StatusOr<Decoded> decoded = DecodeTruncate(request, world.InStream());
  ASSERT_TRUE(decoded.ok());
  const auto& call = std::get<server::TruncateCall>(decoded->request);
  ExpectRefused(call.items[0].refused, Reason::kSkipped, "items[0].sequence_id", "alias 4");
}

TEST(LifecycleCodecTest, OneRequestDefinesAnAliasOnce) {
  CodecWorld world;
  v1::OpenSequencesRequest request = GoodOpen(2);
  for (auto& item : *request.mutable_items()) item.set_alias(4);
  const absl::StatusOr<Decoded> decoded = DecodeOpen(request, world.InStream());
  ASSERT_TRUE(decoded.ok());
  ASSERT_THAT(decoded->refused, SizeIs(1));
  ExpectRefused(decoded->refused[0].status, Reason::kInvalid, "items[1].alias", "alias 4 twice");
}

TEST(LifecycleCodecTest, ARefusedItemMarksItsAliasUnlessAnotherItemDefinesIt) {
  CodecWorld world;
  v1::OpenSequencesRequest open = GoodOpen(2);
  open.mutable_items(0)->set_alias(6);
  open.mutable_items(0)->set_max_len_hint(4294967295u);
  ASSERT_TRUE(DecodeOpen(open, world.InStream()).ok());
  EXPECT_EQ(*world.aliases.Find(6), server::AliasNotes::kFailed);

  v1::ForkSequencesRequest fork;
  for (const uint32_t first : {40u, 41u}) {
    v1::ForkSequencesRequest::Item* item = fork.add_items();
    item->set_parent_id(world.MixedId(3));
    item->set_num_children(3);
    item->set_first_alias(first);
  }
  const absl::StatusOr<Decoded> decoded = DecodeFork(fork, world.InStream());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<server::ForkCall>(decoded->request);
  EXPECT_EQ(ReasonOf(call.items[1].refused), Reason::kInvalid);
  EXPECT_EQ(call.items[1].first_alias, 0u) << "it would rebind what item 0 defines";
  EXPECT_EQ(*world.aliases.Find(42), ModelSlot(2));
}

TEST(LifecycleCodecTest, AForkGivesItsChildrenTheModelOfTheParent) {
  CodecWorld world;
  v1::ForkSequencesRequest request;
  v1::ForkSequencesRequest::Item* item = request.add_items();
  item->set_parent_id(world.MixedId(3));
  item->set_num_children(2);
  item->set_first_alias(10);
  item->set_at_len(0);
  const absl::StatusOr<Decoded> decoded = DecodeFork(request, world.InStream());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<server::ForkCall>(decoded->request);
  EXPECT_TRUE(call.items[0].refused.ok());
  EXPECT_EQ(call.items[0].at_len, 0u);
  EXPECT_EQ(*world.aliases.Find(10), ModelSlot(2));
  EXPECT_EQ(*world.aliases.Find(11), ModelSlot(2));
  EXPECT_EQ(world.aliases.Find(12), nullptr);
}

TEST(LifecycleCodecTest, ForkRefusesHugeWidthsBeforeAnythingIsAllocated) {
  CodecWorld world;
  v1::ForkSequencesRequest request;
  for (int i = 0; i < 3; ++i) {
    request.add_items()->set_parent_id(world.SmallId(1));
    request.mutable_items(i)->set_num_children(4294967295u);
    request.mutable_items(i)->set_first_alias(1);
  }
  ExpectRefused(DecodeFork(request, world.InStream()).status(), Reason::kInvalid,
                "items.num_children", "got a sum of 12884901885, want at most 8");
  EXPECT_EQ(world.aliases.size(), 0u);
}

TEST(LifecycleCodecTest, AForkItemAtFaultIsRefusedAlone) {
  CodecWorld world;
  v1::ForkSequencesRequest request;
  request.add_items()->set_parent_id(world.SmallId(1));  // no children
  request.add_items()->set_parent_id(world.SmallId(1));
  request.mutable_items(1)->set_num_children(1);
  request.add_items()->set_parent_id(world.SmallId(1));
  request.mutable_items(2)->set_num_children(2);
  request.mutable_items(2)->set_first_alias(4294967295u);
  const absl::StatusOr<Decoded> decoded = DecodeFork(request, world.InStream());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& items = std::get<server::ForkCall>(decoded->request).items;
  ExpectRefused(items[0].refused, Reason::kInvalid, "items[0].num_children",
                "got 0, want at least");
  EXPECT_TRUE(items[1].refused.ok());
  ExpectRefused(items[2].refused, Reason::kInvalid, "items[2].first_alias", "want at most");
}

TEST(LifecycleCodecTest, ReorderIsAllOrNothing) {
  CodecWorld world;
  const auto refusal = [&world](std::vector<uint64_t> targets, std::vector<uint64_t> sources,
                                uint64_t epoch = 0) {
    v1::ReorderSequencesRequest request;
    request.set_server_epoch(epoch);
    request.mutable_targets()->Assign(targets.begin(), targets.end());
    request.mutable_sources()->Assign(sources.begin(), sources.end());
    return DecodeReorder(request, world.Unary()).status();
  };
  const uint64_t a = world.SmallId(1);
  const uint64_t b = world.SmallId(2);
  EXPECT_TRUE(refusal({a, b}, {b, b}).ok());
  ExpectRefused(refusal({a, b}, {b}), Reason::kInvalid, "sources", "got 1 entries, want 2");
  ExpectRefused(refusal({a, a}, {b, b}), Reason::kInvalid, "targets[1]", "twice");
  ExpectRefused(refusal({a}, {world.MixedId(1)}), Reason::kInvalid, "sources[0]", "another model");
  ExpectRefused(refusal({a}, {3}), Reason::kInvalid, "sources[0]", "alias 3");
  ExpectRefused(refusal({a}, {b}, 5), Reason::kStaleSequence, "server_epoch", "got 5, want 77");
}

TEST(LifecycleCodecTest, KeepRowsIsRefusedByName) {
  CodecWorld world;
  v1::TruncateSequencesRequest request;
  request.add_items()->set_sequence_id(world.SmallId(1));
  request.add_items()->set_sequence_id(world.SmallId(2));
  request.mutable_items(1)->add_keep_rows(1);
  const absl::StatusOr<Decoded> decoded = DecodeTruncate(request, world.Unary());
  ASSERT_TRUE(decoded.ok());
  const auto& items = std::get<server::TruncateCall>(decoded->request).items;
  EXPECT_TRUE(items[0].refused.ok());
  ExpectRefused(items[1].refused, Reason::kUnsupported, "items[1].keep_rows", "got 1 entries");
}

TEST(LifecycleCodecTest, CloseAndDescribeKeepBadIdsApart) {
  CodecWorld world;
  v1::CloseSequencesRequest close;
  for (const uint64_t id : {world.SmallId(1), uint64_t{0}, world.SmallId(2)}) {
    close.add_sequence_ids(id);
  }
  const absl::StatusOr<Decoded> decoded = DecodeClose(close, world.Unary());
  ASSERT_TRUE(decoded.ok());
  EXPECT_THAT(std::get<server::CloseCall>(decoded->request).sequences, SizeIs(2));
  server::CloseResult result;
  result.items = {absl::OkStatus(), MakeError(Reason::kUnknownSequence, "x", "y")};
  v1::CloseSequencesResponse response;
  EncodeClose(result, decoded->refused, &response);
  ASSERT_THAT(response.errors(), SizeIs(2));
  EXPECT_EQ(response.errors(0).item(), 1u);
  EXPECT_EQ(response.errors(0).status().reason(), v1::REASON_INVALID);
  EXPECT_EQ(response.errors(1).item(), 2u);

  v1::DescribeSequencesRequest describe;
  describe.set_server_epoch(3);
  describe.add_sequence_ids(world.SmallId(1));
  const absl::StatusOr<Decoded> described = DecodeDescribe(describe, world.Unary());
  ASSERT_TRUE(described.ok());
  ASSERT_THAT(described->refused, SizeIs(1));
  EXPECT_EQ(ReasonOf(described->refused[0].status), Reason::kStaleSequence);
}

TEST(LifecycleCodecTest, RenewChecksOwnerLeaseAndEpoch) {
  CodecWorld world;
  v1::RenewLeaseRequest request;
  ExpectRefused(DecodeRenew(request, world.Unary()).status(), Reason::kInvalid, "owner", "0 bytes");
  request.set_owner("me");
  ASSERT_TRUE(DecodeRenew(request, world.Unary()).ok());
  request.set_lease_ms(3'600'001);
  ExpectRefused(DecodeRenew(request, world.Unary()).status(), Reason::kInvalid, "lease_ms",
                "got 3600001");
  request.set_server_epoch(1);
  ExpectRefused(DecodeRenew(request, world.Unary()).status(), Reason::kStaleSequence,
                "server_epoch", "got 1");
}

}  // namespace
}  // namespace attn::test
