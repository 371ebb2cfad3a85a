// attn.v1.AttendRequest to AttendCall, and AttendResult to attn.v1.AttendResponse.
#pragma once

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/rpc/decode.h"

namespace attn::server {

// Takes the tensors out of `request`. An error fails the request; the fault of one item is in its
// AttendItem::refused.
absl::StatusOr<AttendCall> DecodeAttend(v1::AttendRequest* request, const DecodeContext& context);

// Moves the tensors out of `result`.
void EncodeAttend(const AttendCall& call, AttendResult* result, v1::AttendResponse* out);

}  // namespace attn::server
