// Whatever bytes a client sends, the decoders answer with a call that the core may trust, or with a
// status that names reason and field and survives the wire.
//
// An input is a list of messages of one stream: kind, length (two bytes), content. Kinds beyond the
// stream's own are unary requests.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/v1/attention.pb.h"
#include "server/rpc/attend_codec.h"
#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/model_codec.h"
#include "server/rpc/status_codec.h"
#include "server/rpc/stream_codec.h"
#include "server/rpc/unknown_fields.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/rpc/codec_world.h"

namespace attn::fuzz {

const char kCorpusName[] = "codec";

namespace {

using server::AttendCall;
using server::DecodeContext;
using server::Decoded;
using test::CodecWorld;

void CheckError(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  ATTN_CHECK(reason != Reason::kInternal && reason != Reason::kUnspecified, status.ToString());
  ATTN_CHECK(status.code() == CodeOf(reason), status.ToString());
  ATTN_CHECK(!FieldOf(status).empty() && !status.message().empty(), status.ToString());
  v1::Status sent, received;
  server::EncodeStatus(status, &sent);
  ATTN_CHECK(received.ParseFromString(sent.SerializeAsString()), status.ToString());
  ATTN_CHECK(received.message() == status.message(), status.ToString());
}

void CheckItem(const absl::Status& refused) {
  if (!refused.ok()) CheckError(refused);
}

// Rows of the items follow each other without gaps and fill the tensors to the byte.
void CheckAttend(const AttendCall& call, const CodecWorld& world) {
  uint64_t q_rows = 0, kv_rows = 0;
  for (const server::AttendItem& item : call.items) {
    CheckItem(item.refused);
    ATTN_CHECK(item.q_row == static_cast<int64_t>(q_rows), "q_row ", item.q_row);
    ATTN_CHECK(item.kv_row == static_cast<int64_t>(kv_rows), "kv_row ", item.kv_row);
    q_rows += item.q_len;
    kv_rows += item.kv_new_len;
    if (!item.refused.ok()) continue;
    ATTN_CHECK(item.model != nullptr && item.layer < item.model->definition.num_layers, "layer");
    const AttentionSpec& spec = item.model->GroupOf(item.layer).spec;
    ATTN_CHECK(spec.num_q_heads == call.num_q_heads && spec.num_kv_heads == call.num_kv_heads &&
                   spec.activation_dtype == call.activation_dtype,
               "tensors of another layer");
    ATTN_CHECK(uint64_t{item.expected_len} + item.kv_new_len <= UINT32_MAX, "length");
  }
  ATTN_CHECK(!call.items.empty() && call.items.size() <= world.limits.max_items_per_request,
             call.items.size(), " items");
  ATTN_CHECK(q_rows == static_cast<uint64_t>(call.total_q) &&
                 q_rows <= world.limits.max_q_rows_per_request,
             q_rows, " rows");
  const uint64_t element = SizeOf(call.activation_dtype);
  ATTN_CHECK(call.q.size() == q_rows * call.num_q_heads * call.head_dim_qk * element, "q");
  ATTN_CHECK(call.k.size() == kv_rows * call.num_kv_heads * call.head_dim_qk * element, "k");
  ATTN_CHECK(call.v.size() == kv_rows * call.num_kv_heads * call.head_dim_v * element, "v");
}

template <typename Call>
void CheckItems(const Call& call) {
  for (const auto& item : call.items) CheckItem(item.refused);
}

void CheckDecoded(const absl::StatusOr<Decoded>& decoded, const CodecWorld& world) {
  if (!decoded.ok()) return CheckError(decoded.status());
  for (const server::RefusedItem& item : decoded->refused) {
    ATTN_CHECK(item.item < world.limits.max_items_per_request, "item ", item.item);
    CheckError(item.status);
  }
  const server::Request& request = decoded->request;
  if (const auto* attend = std::get_if<AttendCall>(&request)) CheckAttend(*attend, world);
  if (const auto* fork = std::get_if<server::ForkCall>(&request)) CheckItems(*fork);
  if (const auto* truncate = std::get_if<server::TruncateCall>(&request)) CheckItems(*truncate);
}

// A spec that was taken is sent back with every default filled in; that one means the same.
void CheckSpec(v1::ModelSpec spec, const CodecWorld& world) {
  const auto first = server::DecodeModelSpec(std::move(spec), world.limits, world.registry,
                                             test::SupportsAll, "spec");
  if (!first.ok()) return CheckError(first.status());
  server::Model model;
  model.definition = *first;
  v1::ModelInfo info;
  server::EncodeModelInfo(model, &info);
  const auto second =
      server::DecodeModelSpec(info.spec(), world.limits, world.registry, test::SupportsAll, "spec");
  ATTN_CHECK(second.ok(), second.status().ToString());
  ATTN_CHECK(first->fingerprint == second->fingerprint && first->source == second->source,
             info.ShortDebugString());
}

template <typename Message>
bool Parse(std::span<const uint8_t> bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

template <typename Message>
void CheckLifecycle(absl::StatusOr<Decoded> (*decode)(const Message&, const DecodeContext&),
                    std::span<const uint8_t> bytes, const CodecWorld& world) {
  Message message;
  if (Parse(bytes, &message)) CheckDecoded(decode(message, world.Unary()), world);
}

template <typename Message>
void CheckUnknownFields(std::span<const uint8_t> bytes) {
  Message message;
  if (Parse(bytes, &message)) CheckItem(server::CheckKnown(message, ""));
}

void CheckMessage(uint8_t kind, std::span<const uint8_t> bytes, CodecWorld* world) {
  switch (kind) {
    case 0: {
      v1::AttendStreamRequest message;
      if (!Parse(bytes, &message) || message.has_cancel()) return;
      return CheckDecoded(DecodeStreamRequest(&message, world->InStream()), *world);
    }
    case 1: {
      v1::AttendRequest message;
      if (!Parse(bytes, &message)) return;
      const absl::StatusOr<AttendCall> call = DecodeAttend(&message, world->Unary());
      return call.ok() ? CheckAttend(*call, *world) : CheckError(call.status());
    }
    case 2: {
      v1::DeclareModelRequest message;
      if (!Parse(bytes, &message)) return;
      CheckItem(server::CheckKnown(message, ""));
      return CheckSpec(message.spec(), *world);
    }
    case 3:
      return CheckLifecycle(server::DecodeOpen, bytes, *world);
    case 4:
      return CheckLifecycle(server::DecodeFork, bytes, *world);
    case 5:
      return CheckLifecycle(server::DecodeReorder, bytes, *world);
    case 6:
      return CheckLifecycle(server::DecodeTruncate, bytes, *world);
    case 7:
      return CheckLifecycle(server::DecodeClose, bytes, *world);
    case 8:
      return CheckLifecycle(server::DecodeDescribe, bytes, *world);
    case 9:
      return CheckLifecycle(server::DecodeRenew, bytes, *world);
    case 10:
      return CheckUnknownFields<v1::GetModelRequest>(bytes);
    case 11:
      return CheckUnknownFields<v1::ListModelsRequest>(bytes);
    case 12:
      return CheckUnknownFields<v1::RemoveModelRequest>(bytes);
    default:
      return CheckUnknownFields<v1::GetServerInfoRequest>(bytes);
  }
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Says whenever a string is no UTF-8, which is nothing new here.
  static auto* const logged = google::protobuf::SetLogHandler(nullptr);
  (void)logged;
  static auto& world = *new attn::test::CodecWorld;
  world.aliases = {};
  attn::fuzz::ByteSource input({data, size});
  while (!input.AtEnd()) {
    const auto kind = static_cast<uint8_t>(input.Integer(0, 13));
    const auto length = static_cast<size_t>(input.Integer(0, 65535));
    attn::fuzz::CheckMessage(kind, input.Take(length), &world);
  }
  return 0;
}
