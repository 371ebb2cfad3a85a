// The Attend half of convert.h.
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/attend_check.h"
#include "server/core/request_check.h"
#include "server/embed/convert.h"

namespace attn::engine {
namespace {

static_assert(static_cast<uint32_t>(kNonCausal) == server::kItemNonCausal &&
              static_cast<uint32_t>(kAppendAfter) == server::kItemAppendAfter &&
              static_cast<uint32_t>(kRewind) == server::kItemRewind &&
              static_cast<uint32_t>(kNoSinkLogits) == server::kItemNoSinkLogits);

uint64_t TokenOf(const AttendItem& item, const Border& border) {
  if (item.append_token != 0 || item.kv_new_len == 0) return item.append_token;
  return border.last_token.fetch_add(1, std::memory_order_relaxed) + 1;
}

server::AttendItem CoreItemOf(const AttendItem& item, const Border& border) {
  server::AttendItem out;
  out.sequence.value = item.sequence.value;
  out.layer = item.layer;
  out.expected_len = item.kv_new_len == 0 ? 0 : item.expected_len;
  out.q_len = item.q_len;
  out.kv_new_len = item.kv_new_len;
  out.flags = item.flags;
  out.append_token = TokenOf(item, border);
  out.q_start = item.q_start;
  return out;
}

absl::Status CheckLse(const AttendRequest& request, const server::AttendCall& call) {
  const uint64_t want = static_cast<uint64_t>(call.total_q) * call.num_q_heads;
  if (request.lse.empty() || request.lse.size() == want) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "lse",
                   absl::StrCat("got ", request.lse.size(), " values, want ", want, " for [",
                                call.total_q, ", ", call.num_q_heads, "] or none"));
}

absl::Status CheckTensors(const AttendRequest& request, const server::RowTotals& rows,
                          const server::AttendCall& call) {
  using server::CheckTensorBytes;
  const DType dtype = call.activation_dtype;
  ATTN_RETURN_IF_ERROR(
      CheckTensorBytes(request.q.size(), {rows.q, call.num_q_heads, call.head_dim_qk, dtype}, "q"));
  ATTN_RETURN_IF_ERROR(CheckTensorBytes(
      request.k.size(), {rows.kv_new, call.num_kv_heads, call.head_dim_qk, dtype}, "k"));
  ATTN_RETURN_IF_ERROR(CheckTensorBytes(
      request.v.size(), {rows.kv_new, call.num_kv_heads, call.head_dim_v, dtype}, "v"));
  ATTN_RETURN_IF_ERROR(CheckTensorBytes(
      request.out.size(), {rows.q, call.num_q_heads, call.head_dim_v, call.out_dtype}, "out"));
  return CheckLse(request, call);
}

server::BorrowedTensors BorrowedOf(const AttendRequest& request) {
  const auto chars = [](absl::Span<const std::byte> bytes) {
    return reinterpret_cast<const char*>(bytes.data());
  };
  return {.q = chars(request.q),
          .k = chars(request.k),
          .v = chars(request.v),
          .out = reinterpret_cast<char*>(request.out.data()),
          .lse = request.lse.data()};
}

}  // namespace

absl::StatusOr<server::AttendCall> MakeAttend(const AttendRequest& request, const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckItemCount(request.items.size(), border.limits, "sequence_ids"));
  server::AttendCall call;
  ATTN_ASSIGN_OR_RETURN(call.priority, PriorityOf(request.priority));
  call.return_lse = !request.lse.empty();
  call.items.reserve(request.items.size());
  for (const AttendItem& item : request.items) call.items.push_back(CoreItemOf(item, border));
  ATTN_ASSIGN_OR_RETURN(const server::RowTotals rows, server::PlaceRows(border.limits, &call));
  for (size_t i = 0; i < call.items.size(); ++i) {
    call.items[i].refused =
        server::CheckItem(border.registry, nullptr, border.limits, static_cast<int>(i),
                          i == 0 ? nullptr : &call.items[i - 1], &call.items[i]);
  }
  call.borrowed = BorrowedOf(request);
  ATTN_ASSIGN_OR_RETURN(const bool geometry_known, server::AgreeOnGeometry(&call));
  call.out_dtype = request.out_dtype.value_or(call.activation_dtype);
  if (!geometry_known) return call;  // every item is refused; the tensors cannot be checked
  ATTN_RETURN_IF_ERROR(CheckTensors(request, rows, call));
  return call;
}

AttendResult ResultOf(server::AttendResult result) {
  AttendResult out;
  out.items.reserve(result.items.size());
  for (server::AttendResult::Item& item : result.items) {
    out.items.push_back({std::move(item.status), item.new_len, item.replayed});
  }
  out.timing = {.queue = result.timing.queue,
                .compute = result.timing.compute,
                .launch_items = result.timing.launch_items,
                .launch_q_rows = result.timing.launch_q_rows};
  return out;
}

}  // namespace attn::engine
