#include "client/src/wire_status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"
#include "attn/v1/rpc_status.pb.h"

namespace attn::client {

static_assert(static_cast<int>(Reason::kInvalid) == v1::REASON_INVALID);
static_assert(static_cast<int>(Reason::kLengthMismatch) == v1::REASON_LENGTH_MISMATCH);
static_assert(static_cast<int>(Reason::kInternal) == v1::REASON_INTERNAL);

absl::Status FromWire(const v1::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  const auto reason = static_cast<Reason>(status.reason());
  if (CodeOf(reason) == absl::StatusCode::kOk || reason == Reason::kUnspecified) {
    return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
  }
  // MakeError writes the field in front; the server's text may have it there already.
  absl::string_view message = status.message();
  if (!status.field().empty()) absl::ConsumePrefix(&message, absl::StrCat(status.field(), ": "));
  return MakeError(reason, status.field(), message, status.retry_after_ms());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  v1::RpcStatus details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      v1::Status wire;
      if (detail.UnpackTo(&wire) && wire.code() != 0) return FromWire(wire);
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace attn::client
