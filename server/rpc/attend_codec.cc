#include "server/rpc/attend_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/attend_check.h"
#include "server/core/request_check.h"
#include "server/rpc/attend_item.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/status_codec.h"
#include "server/rpc/tensor_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

absl::Status RefuseUnbuilt(const v1::AttendRequest& request) {
  const char* field = nullptr;
  if (request.kv_begins_size() > 0) field = "kv_begins";
  if (request.kv_ends_size() > 0) field = "kv_ends";
  if (request.row_kv_ends_size() > 0) field = "row_kv_ends";
  if (request.mask_tail_lens_size() > 0) field = "mask_tail_lens";
  if (request.has_mask()) field = "mask";
  if (field == nullptr) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   "got a value, want none: this server does not have the feature (see "
                   "GetServerInfo.features)");
}

// "n, 1 or 0 entries".
absl::Status CheckCount(absl::string_view field, int count, int num_items, bool may_be_empty) {
  if (count == num_items || count == 1 || (count == 0 && may_be_empty)) return absl::OkStatus();
  return MakeError(Reason::kInvalid, field,
                   absl::StrCat("got ", count, " entries, want ", num_items, " (one per item)",
                                num_items == 1 ? "" : " or 1", may_be_empty ? " or 0" : ""));
}

absl::Status CheckCounts(const v1::AttendRequest& request) {
  const int n = request.sequence_ids_size();
  ATTN_RETURN_IF_ERROR(CheckCount("layers", request.layers_size(), n, false));
  ATTN_RETURN_IF_ERROR(CheckCount("q_lens", request.q_lens_size(), n, false));
  ATTN_RETURN_IF_ERROR(CheckCount("kv_new_lens", request.kv_new_lens_size(), n, true));
  bool appends = false;
  for (const uint32_t len : request.kv_new_lens()) appends = appends || len > 0;
  ATTN_RETURN_IF_ERROR(CheckCount("expected_lens", request.expected_lens_size(), n, !appends));
  ATTN_RETURN_IF_ERROR(CheckCount("append_tokens", request.append_tokens_size(), n, !appends));
  ATTN_RETURN_IF_ERROR(CheckCount("flags", request.flags_size(), n, true));
  return CheckCount("q_starts", request.q_starts_size(), n, true);
}

absl::Status DecodeRequestValues(const v1::AttendRequest& request, AttendCall* call) {
  ATTN_ASSIGN_OR_RETURN(call->priority, DecodePriority(request.priority(), "priority"));
  call->return_lse = request.return_lse();
  if (request.out_dtype() == v1::DATA_TYPE_UNSPECIFIED) return absl::OkStatus();
  ATTN_ASSIGN_OR_RETURN(call->out_dtype, DecodeFloatType(request.out_dtype(), "out_dtype"));
  return absl::OkStatus();
}

// Lengths and rows of every item.
absl::StatusOr<RowTotals> ReadLengths(const v1::AttendRequest& request, const WireLimits& limits,
                                      AttendCall* call) {
  call->items.resize(request.sequence_ids_size());
  for (int i = 0; i < request.sequence_ids_size(); ++i) {
    call->items[i].q_len = EntryOf(request.q_lens(), i, 0u);
    call->items[i].kv_new_len = EntryOf(request.kv_new_lens(), i, 0u);
  }
  return PlaceRows(limits, call);
}

absl::Status CheckAnswerSize(const AttendCall& call, const WireLimits& limits) {
  const uint64_t values = uint64_t(call.total_q) * call.num_q_heads;
  const uint64_t bytes = values * call.head_dim_v * SizeOf(call.out_dtype) +
                         (call.return_lse ? values * sizeof(float) : 0);
  if (bytes <= limits.max_message_bytes) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, "q_lens",
      absl::StrCat("got a sum of ", call.total_q, ", which makes an answer of ", bytes,
                   " bytes, want at most ", limits.max_message_bytes, " (max_message_bytes)"));
}

absl::Status TakeTensors(const RowTotals& totals, v1::AttendRequest* request, AttendCall* call) {
  const TensorShape q{totals.q, call->num_q_heads, call->head_dim_qk, call->activation_dtype};
  const TensorShape k{totals.kv_new, call->num_kv_heads, call->head_dim_qk, call->activation_dtype};
  const TensorShape v{totals.kv_new, call->num_kv_heads, call->head_dim_v, call->activation_dtype};
  ATTN_ASSIGN_OR_RETURN(call->q,
                        TakeTensor(request->has_q() ? request->mutable_q() : nullptr, q, "q"));
  ATTN_ASSIGN_OR_RETURN(call->k,
                        TakeTensor(request->has_k() ? request->mutable_k() : nullptr, k, "k"));
  ATTN_ASSIGN_OR_RETURN(call->v,
                        TakeTensor(request->has_v() ? request->mutable_v() : nullptr, v, "v"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttendCall> DecodeAttend(v1::AttendRequest* request, const DecodeContext& context) {
  AttendCall call;
  ATTN_RETURN_IF_ERROR(CheckKnown(*request, "attend"));
  ATTN_RETURN_IF_ERROR(RefuseUnbuilt(*request));
  ATTN_RETURN_IF_ERROR(
      CheckItemCount(request->sequence_ids_size(), context.limits, "sequence_ids"));
  ATTN_RETURN_IF_ERROR(CheckCounts(*request));
  ATTN_RETURN_IF_ERROR(DecodeRequestValues(*request, &call));
  ATTN_ASSIGN_OR_RETURN(const RowTotals totals, ReadLengths(*request, context.limits, &call));
  DecodeItems(*request, context, call.items);
  ATTN_ASSIGN_OR_RETURN(const bool geometry_known, AgreeOnGeometry(&call));
  if (request->out_dtype() == v1::DATA_TYPE_UNSPECIFIED) call.out_dtype = call.activation_dtype;
  if (!geometry_known) return call;  // every item is refused; the tensors cannot be checked
  ATTN_RETURN_IF_ERROR(CheckAnswerSize(call, context.limits));
  ATTN_RETURN_IF_ERROR(TakeTensors(totals, request, &call));
  return call;
}

namespace {

void EncodeItems(const AttendResult& result, v1::AttendResponse* out) {
  bool any_failed = false;
  bool any_replayed = false;
  out->mutable_new_lens()->Reserve(static_cast<int>(result.items.size()));
  for (const AttendResult::Item& item : result.items) {
    out->add_new_lens(item.new_len);
    any_failed = any_failed || !item.status.ok();
    any_replayed = any_replayed || item.replayed;
  }
  for (size_t i = 0; any_replayed && i < result.items.size(); ++i) {
    out->add_item_replayed(result.items[i].replayed);
  }
  for (size_t i = 0; any_failed && i < result.items.size(); ++i) {
    const absl::Status& status = result.items[i].status;
    out->add_item_reasons(ToWireReason(status));
    if (status.ok()) continue;
    v1::ItemError* error = out->add_errors();
    error->set_item(static_cast<uint32_t>(i));
    EncodeStatus(status, error->mutable_status());
  }
}

}  // namespace

void EncodeAttend(const AttendCall& call, AttendResult* result, v1::AttendResponse* out) {
  EncodeItems(*result, out);
  v1::Timing* timing = out->mutable_timing();
  timing->set_queue_ns(static_cast<uint64_t>(result->timing.queue));
  timing->set_input_ns(static_cast<uint64_t>(result->timing.input));
  timing->set_compute_ns(static_cast<uint64_t>(result->timing.compute));
  timing->set_launch_items(result->timing.launch_items);
  timing->set_launch_q_rows(result->timing.launch_q_rows);
  if (call.total_q == 0 || call.num_q_heads == 0) return;
  EncodeTensor(std::move(result->out), call.out_dtype,
               {call.total_q, call.num_q_heads, call.head_dim_v}, out->mutable_out());
  if (!call.return_lse) return;
  EncodeTensor(std::move(result->lse), DType::kFloat32, {call.total_q, call.num_q_heads},
               out->mutable_lse());
}

}  // namespace attn::server
