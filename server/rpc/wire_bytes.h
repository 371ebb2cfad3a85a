// Messages from and to the byte buffers of gRPC. The services take raw bytes, so that a message
// that does not parse can be told from the end of a stream, big fields can be moved out, and a
// message that would grow out of all proportion is refused before it is parsed.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "server/core/wire_limits.h"

namespace attn::server {

// Takes the bytes. INVALID if they are no such message, or one with more fields, nested messages or
// packed entries than any request within `limits` has: two bytes on the wire can make a message of
// hundreds.
absl::Status ParseBytes(grpc::ByteBuffer* bytes, const WireLimits& limits,
                        google::protobuf::Message* out);

// REQUIRES: the message is below 2 GiB (the codec limits answers to max_message_bytes).
grpc::ByteBuffer SerializeBytes(const google::protobuf::Message& message);

}  // namespace attn::server
