// How an error travels: an absl::Status whose code is canonical and which carries, as payloads, a
// Reason for programs, the path of the field at fault and a retry hint.
//
//   return MakeError(Reason::kInvalid, "q_lens[3]", "got 70000, want at most 65536");
//
// gives the message "q_lens[3]: got 70000, want at most 65536". Messages are lower case without a
// full stop and name what came and what is allowed. Nothing here knows protobuf or gRPC.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attn {

// Numbers equal attn.v1.Reason; a static assertion in the server holds them together.
enum class Reason : int {
  kUnspecified = 0,
  kOk = 1,
  kInvalid = 2,
  kUnsupported = 3,
  kUnknownSequence = 4,
  kStaleSequence = 5,
  kLengthMismatch = 6,
  kNotResident = 7,
  kNoPages = 8,
  kTooLarge = 9,
  kQuota = 10,
  kQueueFull = 11,
  kDeadline = 12,
  kCancelled = 13,
  kSkipped = 14,
  kPermission = 15,
  kDataLoss = 16,
  kDraining = 17,
  kDeviceLost = 18,
  kInternal = 19,
  // Beyond the draft, see docs/adr: names of models.
  kUnknownModel = 20,
  kModelExists = 21,
  kModelInUse = 22,
};

// The one canonical code that goes with a reason.
absl::StatusCode CodeOf(Reason reason);
// "NO_PAGES" for kNoPages, and so on.
absl::string_view NameOf(Reason reason);

// REQUIRES: reason is neither kUnspecified nor kOk. `field` may be empty.
absl::Status MakeError(Reason reason, absl::string_view field, absl::string_view message,
                       uint32_t retry_after_ms = 0);

// kOk for an OK status. A status without a payload maps by its code, to kInternal if nothing fits.
Reason ReasonOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);
uint32_t RetryAfterMsOf(const absl::Status& status);

}  // namespace attn
