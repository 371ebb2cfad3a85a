#include "attn/base/error.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attn/base/check.h"

namespace attn {
namespace {

constexpr absl::string_view kReasonUrl = "attn/reason";
constexpr absl::string_view kFieldUrl = "attn/field";
constexpr absl::string_view kRetryUrl = "attn/retry_after_ms";

std::optional<int64_t> NumberPayload(const absl::Status& status, absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  int64_t number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

absl::StatusCode CodeOf(Reason reason) {
  switch (reason) {
    case Reason::kOk:
      return absl::StatusCode::kOk;
    case Reason::kInvalid:
      return absl::StatusCode::kInvalidArgument;
    case Reason::kUnsupported:
      return absl::StatusCode::kUnimplemented;
    case Reason::kUnknownSequence:
    case Reason::kStaleSequence:
    case Reason::kUnknownModel:
      return absl::StatusCode::kNotFound;
    case Reason::kLengthMismatch:
    case Reason::kNotResident:
    case Reason::kModelInUse:
      return absl::StatusCode::kFailedPrecondition;
    case Reason::kNoPages:
    case Reason::kTooLarge:
    case Reason::kQuota:
    case Reason::kQueueFull:
      return absl::StatusCode::kResourceExhausted;
    case Reason::kDeadline:
      return absl::StatusCode::kDeadlineExceeded;
    case Reason::kCancelled:
      return absl::StatusCode::kCancelled;
    case Reason::kSkipped:
      return absl::StatusCode::kAborted;
    case Reason::kPermission:
      return absl::StatusCode::kPermissionDenied;
    case Reason::kDataLoss:
      return absl::StatusCode::kDataLoss;
    case Reason::kDraining:
    case Reason::kDeviceLost:
      return absl::StatusCode::kUnavailable;
    case Reason::kModelExists:
      return absl::StatusCode::kAlreadyExists;
    case Reason::kUnspecified:
    case Reason::kInternal:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kInternal;
}

absl::string_view NameOf(Reason reason) {
  switch (reason) {
    case Reason::kUnspecified:
      return "UNSPECIFIED";
    case Reason::kOk:
      return "OK";
    case Reason::kInvalid:
      return "INVALID";
    case Reason::kUnsupported:
      return "UNSUPPORTED";
    case Reason::kUnknownSequence:
      return "UNKNOWN_SEQUENCE";
    case Reason::kStaleSequence:
      return "STALE_SEQUENCE";
    case Reason::kLengthMismatch:
      return "LENGTH_MISMATCH";
    case Reason::kNotResident:
      return "NOT_RESIDENT";
    case Reason::kNoPages:
      return "NO_PAGES";
    case Reason::kTooLarge:
      return "TOO_LARGE";
    case Reason::kQuota:
      return "QUOTA";
    case Reason::kQueueFull:
      return "QUEUE_FULL";
    case Reason::kDeadline:
      return "DEADLINE";
    case Reason::kCancelled:
      return "CANCELLED";
    case Reason::kSkipped:
      return "SKIPPED";
    case Reason::kPermission:
      return "PERMISSION";
    case Reason::kDataLoss:
      return "DATA_LOSS";
    case Reason::kDraining:
      return "DRAINING";
    case Reason::kDeviceLost:
      return "DEVICE_LOST";
    case Reason::kInternal:
      return "INTERNAL";
    case Reason::kUnknownModel:
      return "UNKNOWN_MODEL";
    case Reason::kModelExists:
      return "MODEL_EXISTS";
    case Reason::kModelInUse:
      return "MODEL_IN_USE";
  }
  return "UNSPECIFIED";
}

absl::Status MakeError(Reason reason, absl::string_view field, absl::string_view message,
                       uint32_t retry_after_ms) {
  ATTN_CHECK(CodeOf(reason) != absl::StatusCode::kOk, "an error needs a reason");
  absl::Status status(CodeOf(reason),
                      field.empty() ? std::string(message) : absl::StrCat(field, ": ", message));
  status.SetPayload(kReasonUrl, absl::Cord(absl::StrCat(static_cast<int>(reason))));
  if (!field.empty()) status.SetPayload(kFieldUrl, absl::Cord(field));
  if (retry_after_ms != 0) {
    status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(retry_after_ms)));
  }
  return status;
}

Reason ReasonOf(const absl::Status& status) {
  if (status.ok()) return Reason::kOk;
  const std::optional<int64_t> number = NumberPayload(status, kReasonUrl);
  if (number.has_value()) return static_cast<Reason>(*number);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return Reason::kInvalid;
    case absl::StatusCode::kUnimplemented:
      return Reason::kUnsupported;
    case absl::StatusCode::kDeadlineExceeded:
      return Reason::kDeadline;
    case absl::StatusCode::kCancelled:
      return Reason::kCancelled;
    case absl::StatusCode::kPermissionDenied:
      return Reason::kPermission;
    case absl::StatusCode::kDataLoss:
      return Reason::kDataLoss;
    default:
      return Reason::kInternal;
  }
}

std::string FieldOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFieldUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

uint32_t RetryAfterMsOf(const absl::Status& status) {
  return static_cast<uint32_t>(NumberPayload(status, kRetryUrl).value_or(0));
}

}  // namespace attn
