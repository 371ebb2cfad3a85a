// Errors of the wire as absl::Status with the payloads of attn/base/error.h.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "attn/v1/attention.pb.h"

namespace attn::client {

// A Status field of a response; OK for code 0.
absl::Status FromWire(const v1::Status& status);
// How a call ended. The attn.v1.Status among the details is used if there is one.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace attn::client
