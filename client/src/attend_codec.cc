#include "client/src/attend_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/wire_dtype.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

using google::protobuf::io::CodedOutputStream;

// Tags of length-delimited fields: number << 3 | 2.
constexpr uint32_t LengthTag(int field) { return static_cast<uint32_t>(field) << 3 | 2; }
constexpr uint32_t kAttendTag = LengthTag(v1::AttendStreamRequest::kAttendFieldNumber);
constexpr uint32_t kRawTag = LengthTag(v1::Tensor::kRawFieldNumber);
static_assert(kRawTag < 0x80, "one byte");

// Packs a per-item value: nothing if all equal `absent`, one entry if all are equal, else n.
template <typename Get, typename Field>
void Pack(const std::vector<AttendItem>& items, Get get, std::optional<uint64_t> absent,
          Field* field) {
  const auto first = get(items[0]);
  const bool equal = std::all_of(items.begin(), items.end(),
                                 [&](const AttendItem& item) { return get(item) == first; });
  if (equal && absent.has_value() && first == *absent) return;
  field->Reserve(equal ? 1 : static_cast<int>(items.size()));
  for (const AttendItem& item : items) {
    field->Add(get(item));
    if (equal) return;
  }
}

absl::Status PackStarts(const AttendPart& part, v1::AttendRequest* wire) {
  const bool any = std::any_of(part.items.begin(), part.items.end(),
                               [](const AttendItem& item) { return item.q_start.has_value(); });
  if (!any) return absl::OkStatus();
  for (size_t i = 0; i < part.items.size(); ++i) {
    const AttendItem& item = part.items[i];
    const uint64_t end = uint64_t{item.expected_len} + item.kv_new_len;
    if (!item.q_start.has_value() &&
        (item.q_len > 0 && (item.kv_new_len == 0 || end < item.q_len))) {
      return MakeError(Reason::kInvalid, absl::StrCat("items[", part.first_item + i, "].q_start"),
                       "got none, want one, since other items of the request state theirs and the "
                       "default of this one is not known to the client");
    }
    wire->add_q_starts(item.q_start.value_or(static_cast<uint32_t>(end - item.q_len)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodeHeader(const AttendRequest& request, const AttendPart& part,
                                         uint64_t server_epoch) {
  v1::AttendRequest wire;
  const std::vector<AttendItem>& items = part.items;
  wire.set_server_epoch(server_epoch);
  for (const AttendItem& item : items) wire.add_sequence_ids(item.sequence.value);
  Pack(
      items, [](const AttendItem& i) { return i.layer; }, {}, wire.mutable_layers());
  Pack(
      items, [](const AttendItem& i) { return i.expected_len; }, {}, wire.mutable_expected_lens());
  Pack(
      items, [](const AttendItem& i) { return i.q_len; }, {}, wire.mutable_q_lens());
  Pack(
      items, [](const AttendItem& i) { return i.kv_new_len; }, 0, wire.mutable_kv_new_lens());
  Pack(
      items, [](const AttendItem& i) { return i.flags; }, 0, wire.mutable_flags());
  const bool appends =
      std::any_of(items.begin(), items.end(), [](const AttendItem& i) { return i.kv_new_len > 0; });
  if (appends) {
    // Read-only items beside appending ones need a number too, any but 0.
    const auto token = [](const AttendItem& i) {
      return i.append_token == 0 ? uint64_t{1} : i.append_token;
    };
    Pack(items, token, {}, wire.mutable_append_tokens());
  }
  ATTN_RETURN_IF_ERROR(PackStarts(part, &wire));
  wire.set_priority(static_cast<v1::Priority>(request.priority));
  wire.set_return_lse(request.return_lse);
  if (request.out_dtype.has_value()) wire.set_out_dtype(ToWire(*request.out_dtype));
  return wire.SerializeAsString();
}

// A Tensor field with its bytes: tag, length, dtype, tag of `raw`, length, bytes.
class TensorWriter {
 public:
  TensorWriter(int field, DType dtype, absl::Span<const std::byte> bytes)
      : field_(field), dtype_(ToWire(dtype)), bytes_(bytes) {}

  size_t size() const {
    if (bytes_.empty()) return 0;
    return CodedOutputStream::VarintSize32(LengthTag(field_)) +
           CodedOutputStream::VarintSize64(message_size()) + message_size();
  }

  uint8_t* Write(uint8_t* target) const {
    if (bytes_.empty()) return target;
    target = CodedOutputStream::WriteVarint32ToArray(LengthTag(field_), target);
    target = CodedOutputStream::WriteVarint64ToArray(message_size(), target);
    *target++ = v1::Tensor::kDtypeFieldNumber << 3;
    *target++ = static_cast<uint8_t>(dtype_);
    *target++ = kRawTag;
    target = CodedOutputStream::WriteVarint64ToArray(bytes_.size(), target);
    std::memcpy(target, bytes_.data(), bytes_.size());
    return target + bytes_.size();
  }

 private:
  size_t message_size() const {
    return 3 + CodedOutputStream::VarintSize64(bytes_.size()) + bytes_.size();
  }

  const int field_;
  const v1::DataType dtype_;
  const absl::Span<const std::byte> bytes_;
};

}  // namespace

absl::StatusOr<grpc::Slice> EncodePart(const AttendRequest& request, const AttendPart& part,
                                       uint64_t server_epoch, Framing framing) {
  ATTN_ASSIGN_OR_RETURN(const std::string header, EncodeHeader(request, part, server_epoch));
  const TensorWriter q(v1::AttendRequest::kQFieldNumber, request.dtype, part.q);
  const TensorWriter k(v1::AttendRequest::kKFieldNumber, request.dtype, part.k);
  const TensorWriter v(v1::AttendRequest::kVFieldNumber, request.dtype, part.v);
  const size_t body = header.size() + q.size() + k.size() + v.size();
  const size_t frame = framing == Framing::kUnary ? 0
                                                  : CodedOutputStream::VarintSize32(kAttendTag) +
                                                        CodedOutputStream::VarintSize64(body);
  grpc::Slice slice(frame + body);
  auto* target = const_cast<uint8_t*>(slice.begin());
  if (frame != 0) {
    target = CodedOutputStream::WriteVarint32ToArray(kAttendTag, target);
    target = CodedOutputStream::WriteVarint64ToArray(body, target);
  }
  std::memcpy(target, header.data(), header.size());
  v.Write(k.Write(q.Write(target + header.size())));
  return slice;
}

namespace {

absl::Status BadAnswer(absl::string_view field, absl::string_view message) {
  return MakeError(Reason::kInternal, field, absl::StrCat("the server's answer has ", message));
}

absl::Status DecodeOutcomes(const v1::AttendResponse& response, size_t num_items,
                            std::vector<AttendOutcome>* outcomes) {
  const auto fits = [&](int size) { return size == 0 || static_cast<size_t>(size) == num_items; };
  if (static_cast<size_t>(response.new_lens_size()) != num_items) {
    return BadAnswer("new_lens",
                     absl::StrCat(response.new_lens_size(), " entries, want ", num_items));
  }
  if (!fits(response.item_reasons_size()) || !fits(response.item_replayed_size())) {
    return BadAnswer("item_reasons", "a number of entries that is neither 0 nor that of items");
  }
  outcomes->resize(num_items);
  for (size_t i = 0; i < num_items; ++i) {
    AttendOutcome& outcome = (*outcomes)[i];
    const int at = static_cast<int>(i);
    outcome.new_len = response.new_lens(at);
    outcome.replayed = response.item_replayed_size() > 0 && response.item_replayed(at);
    if (response.item_reasons_size() > 0 && response.item_reasons(at) != v1::REASON_OK) {
      auto reason = static_cast<Reason>(response.item_reasons(at));
      if (reason == Reason::kUnspecified) reason = Reason::kInternal;
      outcome.status = MakeError(reason, "", absl::StrCat("item ", i, " failed"));
    }
  }
  for (const v1::ItemError& error : response.errors()) {
    if (error.item() >= num_items) return BadAnswer("errors", "an item beyond the request's");
    const absl::Status status = FromWire(error.status());
    if (!status.ok()) (*outcomes)[error.item()].status = status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttendResult> DecodeAttend(v1::AttendResponse&& response, size_t num_items) {
  AttendResult result;
  ATTN_RETURN_IF_ERROR(DecodeOutcomes(response, num_items, &result.items));
  if (response.has_out()) {
    const std::optional<DType> dtype = FromWire(response.out().dtype());
    if (!dtype.has_value()) return BadAnswer("out.dtype", "an unknown dtype");
    result.out_dtype = *dtype;
    result.out = std::move(*response.mutable_out()->mutable_raw());
  }
  const std::string& lse = response.lse().raw();
  if (lse.size() % sizeof(float) != 0) return BadAnswer("lse", "a part of a number");
  result.lse.resize(lse.size() / sizeof(float));
  if (!lse.empty()) std::memcpy(result.lse.data(), lse.data(), lse.size());
  const v1::Timing& timing = response.timing();
  result.timing.queue_ns = timing.queue_ns();
  result.timing.input_ns = timing.input_ns();
  result.timing.compute_ns = timing.compute_ns();
  result.timing.output_ns = timing.output_ns();
  result.timing.launch_items = timing.launch_items();
  result.timing.launch_q_rows = timing.launch_q_rows();
  return result;
}

void MergePart(const AttendPart& part, AttendResult&& result, AttendResult* total) {
  for (size_t i = 0; i < result.items.size(); ++i) {
    const size_t item = part.first_item + i;
    if (item >= total->items.size()) {
      total->items.push_back(std::move(result.items[i]));
      continue;
    }
    // The next piece of an item: its length now, and whether any of it had been there before.
    total->items[item].new_len = result.items[i].new_len;
    total->items[item].replayed |= result.items[i].replayed;
  }
  if (!result.out.empty()) total->out_dtype = result.out_dtype;
  if (total->out.empty()) {
    total->out = std::move(result.out);
  } else {
    total->out += result.out;
  }
  total->lse.insert(total->lse.end(), result.lse.begin(), result.lse.end());
  total->timing.queue_ns += result.timing.queue_ns;
  total->timing.input_ns += result.timing.input_ns;
  total->timing.compute_ns += result.timing.compute_ns;
  total->timing.output_ns += result.timing.output_ns;
  total->timing.launch_items += result.timing.launch_items;
  total->timing.launch_q_rows += result.timing.launch_q_rows;
}

bool ParseMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message) {
  grpc::ProtoBufferReader reader(buffer);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

}  // namespace attn::client
