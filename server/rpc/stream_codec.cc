#include "server/rpc/stream_codec.h"

#include <utility>

#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/rpc/attend_codec.h"
#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

using In = v1::AttendStreamRequest;

absl::StatusOr<Decoded> DecodeAttendRequest(In* request, const DecodeContext& context) {
  ATTN_ASSIGN_OR_RETURN(AttendCall call, DecodeAttend(request->mutable_attend(), context));
  return Decoded(std::move(call));
}

}  // namespace

absl::StatusOr<Decoded> DecodeStreamRequest(In* request, const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(*request, ""));
  switch (request->request_case()) {
    case In::kAttend:
      return DecodeAttendRequest(request, context);
    case In::kOpen:
      return DecodeOpen(request->open(), context);
    case In::kFork:
      return DecodeFork(request->fork(), context);
    case In::kReorder:
      return DecodeReorder(request->reorder(), context);
    case In::kTruncate:
      return DecodeTruncate(request->truncate(), context);
    case In::kClose:
      return DecodeClose(request->close(), context);
    case In::kRenew:
      return DecodeRenew(request->renew(), context);
    case In::kCompute:
      return MakeError(Reason::kUnsupported, "compute",
                       "attention without a cache is not built here; want attend");
    case In::kCancel:
    case In::REQUEST_NOT_SET:
      break;
  }
  return MakeError(Reason::kInvalid, "request",
                   "got none, want one of attend, open, fork, reorder, truncate, close, renew, "
                   "cancel");
}

void EncodeStreamResult(const std::vector<RefusedItem>& refused, uint64_t server_epoch, Call* call,
                        v1::AttendStreamResponse* out) {
  if (auto* attend = std::get_if<AttendResult>(&call->result)) {
    EncodeAttend(std::get<AttendCall>(call->request), attend, out->mutable_attend());
  } else if (const auto* open = std::get_if<OpenResult>(&call->result)) {
    EncodeOpen(std::get<OpenCall>(call->request), *open, refused, server_epoch,
               out->mutable_open());
  } else if (const auto* fork = std::get_if<ForkResult>(&call->result)) {
    EncodeFork(*fork, out->mutable_fork());
  } else if (std::holds_alternative<ReorderResult>(call->result)) {
    out->mutable_reorder();
  } else if (const auto* truncate = std::get_if<TruncateResult>(&call->result)) {
    EncodeTruncate(*truncate, out->mutable_truncate());
  } else if (const auto* close = std::get_if<CloseResult>(&call->result)) {
    EncodeClose(*close, refused, out->mutable_close());
  } else if (const auto* renew = std::get_if<RenewResult>(&call->result)) {
    EncodeRenew(*renew, out->mutable_renew());
  } else {
    ATTN_CHECK(false, "a stream's call has a result of alternative ", call->result.index());
  }
}

}  // namespace attn::server
