// The requests and answers inside an AttendStream: which decoder and encoder belongs to which.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/rpc/decode.h"

namespace attn::server {

// REQUIRES: the request is not a CancelRequest, which needs no call.
absl::StatusOr<Decoded> DecodeStreamRequest(v1::AttendStreamRequest* request,
                                            const DecodeContext& context);

// REQUIRES: call->status.ok(). Moves the tensors out of the call.
void EncodeStreamResult(const std::vector<RefusedItem>& refused, uint64_t server_epoch, Call* call,
                        v1::AttendStreamResponse* out);

}  // namespace attn::server
