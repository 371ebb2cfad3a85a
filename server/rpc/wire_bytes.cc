#include "server/rpc/wire_bytes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Whatever they hold, messages below this stay small.
constexpr size_t kSmallMessage = 64 << 10;

// Bytes of memory, roughly: a field kept as unknown; an empty message of the largest type.
constexpr uint64_t kFieldCost = 64;
constexpr uint64_t kMessageCost = 256;
constexpr int kMaxGroupDepth = 100;  // as the parser's

// Fields, nested messages and entries of the largest legal request, each with room to spare.
uint64_t CostLimit(const WireLimits& limits) {
  return (1 << 20) + 4096 * uint64_t{limits.max_items_per_request} +
         16 * limits.max_q_rows_per_request;
}

// Walks over the fields of a message, and adds up the memory that parsing them would take beyond
// that of strings, which are no larger than their bytes.
class CostScan {
 public:
  CostScan(CodedInputStream* in, uint64_t limit) : in_(*in), limit_(limit) {}

  // INVALID naming the field at which the limit was passed. What is malformed ends the walk: the
  // parser gets no further.
  absl::Status Check(const Descriptor& type) {
    Walk(&type, 0);
    if (cost_ <= limit_) return absl::OkStatus();
    return MakeError(Reason::kInvalid, field_,
                     absl::StrCat("got a message that takes more than ", limit_,
                                  " bytes when parsed, besides its strings; want fewer fields, "
                                  "items or entries"));
  }

 private:
  // Until the end of the message, or of the group where `type` is null. False ends the walk.
  bool Walk(const Descriptor* type, int depth) {
    while (const uint32_t tag = in_.ReadTag()) {
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP) return true;
      const FieldDescriptor* field =
          type == nullptr ? nullptr
                          : type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!WalkField(tag, field, depth)) return false;
    }
    return true;
  }

  bool WalkField(uint32_t tag, const FieldDescriptor* field, int depth) {
    if (!Add(kFieldCost, field)) return false;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return WalkBytes(field, depth);
      case WireFormatLite::WIRETYPE_START_GROUP:
        return depth < kMaxGroupDepth && Walk(nullptr, depth + 1);
      default:
        return WireFormatLite::SkipField(&in_, tag);
    }
  }

  bool WalkBytes(const FieldDescriptor* field, int depth) {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length)) return false;
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!Add(kMessageCost, field)) return false;
      const CodedInputStream::Limit outer = in_.PushLimit(length);
      const bool goes_on = Walk(field->message_type(), depth) && in_.BytesUntilLimit() == 0;
      in_.PopLimit(outer);
      if (!goes_on && cost_ > limit_) field_ = absl::StrCat(field->name(), ".", field_);
      return goes_on;
    }
    // Up to one entry of eight bytes in each byte of a packed array.
    const bool packed = field != nullptr && field->is_packable();
    return Add(packed ? EntryBytes(*field) * static_cast<uint64_t>(length) : 0, field) &&
           in_.Skip(length);
  }

  // Memory per byte on the wire; entries of fixed size take no more than their bytes.
  static uint64_t EntryBytes(const FieldDescriptor& field) {
    switch (field.type()) {
      case FieldDescriptor::TYPE_INT64:
      case FieldDescriptor::TYPE_UINT64:
      case FieldDescriptor::TYPE_SINT64:
        return 8;
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_UINT32:
      case FieldDescriptor::TYPE_SINT32:
      case FieldDescriptor::TYPE_ENUM:
        return 4;
      default:
        return 0;
    }
  }

  bool Add(uint64_t cost, const FieldDescriptor* field) {
    cost_ += cost;
    if (cost_ <= limit_) return true;
    field_ = field == nullptr ? "unknown" : field->name();
    return false;
  }

  CodedInputStream& in_;
  const uint64_t limit_;
  uint64_t cost_ = 0;
  std::string field_;  // path of the one that passed the limit
};

absl::Status CheckCost(grpc::ByteBuffer* bytes, const WireLimits& limits, const Descriptor& type) {
  if (bytes->Length() <= kSmallMessage) return absl::OkStatus();
  grpc::ProtoBufferReader reader(bytes);
  if (!reader.status().ok()) return absl::OkStatus();  // the parser will say so
  CodedInputStream in(&reader);
  return CostScan(&in, CostLimit(limits)).Check(type);
}

}  // namespace

absl::Status ParseBytes(grpc::ByteBuffer* bytes, const WireLimits& limits,
                        google::protobuf::Message* out) {
  bool parsed = false;
  if (bytes->Valid()) {
    ATTN_RETURN_IF_ERROR(CheckCost(bytes, limits, *out->GetDescriptor()));
    grpc::ProtoBufferReader reader(bytes);
    parsed = reader.status().ok() && out->ParseFromZeroCopyStream(&reader);
    bytes->Clear();
  }
  if (parsed) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "", "the bytes are not a message of the type of this call");
}

grpc::ByteBuffer SerializeBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool owned = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                 &owned);
  ATTN_CHECK(status.ok(), "an answer could not be serialized: ", status.error_message());
  return bytes;
}

}  // namespace attn::server
