// How an error looks on the wire: absl::Status to attn.v1.Status and to the status of a failed RPC.
// The numbers of reasons and codes are held to those of the proto file by static assertions.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "attn/v1/attention.pb.h"

namespace attn::server {

// REQUIRES: !status.ok().
void EncodeStatus(const absl::Status& status, v1::Status* out);
// OK for an OK status; else the details hold an attn.v1.RpcStatus with one attn.v1.Status.
grpc::Status ToGrpcStatus(const absl::Status& status);

v1::Reason ToWireReason(const absl::Status& status);

}  // namespace attn::server
