#include "server/rpc/status_codec.h"

#include <string>

#include "attn/base/error.h"
#include "attn/v1/rpc_status.pb.h"
#include "server/core/stats.h"

namespace attn::server {
namespace {

constexpr bool Same(Reason ours, v1::Reason wire) {
  return static_cast<int>(ours) == static_cast<int>(wire);
}
static_assert(v1::Reason_ARRAYSIZE == 23, "a new reason needs its assertion below");
static_assert(v1::Reason_ARRAYSIZE == kNumReasons, "a new reason needs its counters");
static_assert(Same(Reason::kUnspecified, v1::REASON_UNSPECIFIED));
static_assert(Same(Reason::kOk, v1::REASON_OK));
static_assert(Same(Reason::kInvalid, v1::REASON_INVALID));
static_assert(Same(Reason::kUnsupported, v1::REASON_UNSUPPORTED));
static_assert(Same(Reason::kUnknownSequence, v1::REASON_UNKNOWN_SEQUENCE));
static_assert(Same(Reason::kStaleSequence, v1::REASON_STALE_SEQUENCE));
static_assert(Same(Reason::kLengthMismatch, v1::REASON_LENGTH_MISMATCH));
static_assert(Same(Reason::kNotResident, v1::REASON_NOT_RESIDENT));
static_assert(Same(Reason::kNoPages, v1::REASON_NO_PAGES));
static_assert(Same(Reason::kTooLarge, v1::REASON_TOO_LARGE));
static_assert(Same(Reason::kQuota, v1::REASON_QUOTA));
static_assert(Same(Reason::kQueueFull, v1::REASON_QUEUE_FULL));
static_assert(Same(Reason::kDeadline, v1::REASON_DEADLINE));
static_assert(Same(Reason::kCancelled, v1::REASON_CANCELLED));
static_assert(Same(Reason::kSkipped, v1::REASON_SKIPPED));
static_assert(Same(Reason::kPermission, v1::REASON_PERMISSION));
static_assert(Same(Reason::kDataLoss, v1::REASON_DATA_LOSS));
static_assert(Same(Reason::kDraining, v1::REASON_DRAINING));
static_assert(Same(Reason::kDeviceLost, v1::REASON_DEVICE_LOST));
static_assert(Same(Reason::kInternal, v1::REASON_INTERNAL));
static_assert(Same(Reason::kUnknownModel, v1::REASON_UNKNOWN_MODEL));
static_assert(Same(Reason::kModelExists, v1::REASON_MODEL_EXISTS));
static_assert(Same(Reason::kModelInUse, v1::REASON_MODEL_IN_USE));

constexpr bool Same(absl::StatusCode ours, grpc::StatusCode wire) {
  return static_cast<int>(ours) == static_cast<int>(wire);
}
static_assert(Same(absl::StatusCode::kOk, grpc::OK));
static_assert(Same(absl::StatusCode::kCancelled, grpc::CANCELLED));
static_assert(Same(absl::StatusCode::kUnknown, grpc::UNKNOWN));
static_assert(Same(absl::StatusCode::kInvalidArgument, grpc::INVALID_ARGUMENT));
static_assert(Same(absl::StatusCode::kDeadlineExceeded, grpc::DEADLINE_EXCEEDED));
static_assert(Same(absl::StatusCode::kNotFound, grpc::NOT_FOUND));
static_assert(Same(absl::StatusCode::kAlreadyExists, grpc::ALREADY_EXISTS));
static_assert(Same(absl::StatusCode::kPermissionDenied, grpc::PERMISSION_DENIED));
static_assert(Same(absl::StatusCode::kResourceExhausted, grpc::RESOURCE_EXHAUSTED));
static_assert(Same(absl::StatusCode::kFailedPrecondition, grpc::FAILED_PRECONDITION));
static_assert(Same(absl::StatusCode::kAborted, grpc::ABORTED));
static_assert(Same(absl::StatusCode::kOutOfRange, grpc::OUT_OF_RANGE));
static_assert(Same(absl::StatusCode::kUnimplemented, grpc::UNIMPLEMENTED));
static_assert(Same(absl::StatusCode::kInternal, grpc::INTERNAL));
static_assert(Same(absl::StatusCode::kUnavailable, grpc::UNAVAILABLE));
static_assert(Same(absl::StatusCode::kDataLoss, grpc::DATA_LOSS));
static_assert(Same(absl::StatusCode::kUnauthenticated, grpc::UNAUTHENTICATED));

}  // namespace

v1::Reason ToWireReason(const absl::Status& status) {
  return static_cast<v1::Reason>(ReasonOf(status));
}

void EncodeStatus(const absl::Status& status, v1::Status* out) {
  out->set_code(static_cast<int32_t>(status.code()));
  out->set_reason(ToWireReason(status));
  out->set_message(std::string(status.message()));
  out->set_field(FieldOf(status));
  out->set_retry_after_ms(RetryAfterMsOf(status));
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::Status detail;
  EncodeStatus(status, &detail);
  v1::RpcStatus rpc_status;
  rpc_status.set_code(detail.code());
  rpc_status.set_message(detail.message());
  rpc_status.add_details()->PackFrom(detail);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), detail.message(),
                      rpc_status.SerializeAsString());
}

}  // namespace attn::server
