// AttendRequest to bytes and AttendResponse to AttendResult.
//
// Requests are written by hand around the generated message: the tensors are copied once, from the
// caller's memory into the slice that gRPC sends, where the generated code would copy them twice.
// The slice is kept until the answer is there, so that a repeat sends the same bytes.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/statusor.h"
#include "attn/client/attend.h"
#include "attn/v1/attention.pb.h"
#include "client/src/attend_split.h"

namespace attn::client {

enum class Framing {
  kUnary,   // an attn.v1.AttendRequest
  kStream,  // the field `attend` of an attn.v1.AttendStreamRequest
};

// INVALID if some items state q_start and the default of the others is not known here.
absl::StatusOr<grpc::Slice> EncodePart(const AttendRequest& request, const AttendPart& part,
                                       uint64_t server_epoch, Framing framing);

// Of `num_items` items. Takes the bytes of `response`. INTERNAL if counts do not fit.
absl::StatusOr<AttendResult> DecodeAttend(v1::AttendResponse&& response, size_t num_items);

// Adds the answer to the next part behind `total`.
void MergePart(const AttendPart& part, AttendResult&& result, AttendResult* total);

// False if the bytes are no such message.
bool ParseMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message);

}  // namespace attn::client
