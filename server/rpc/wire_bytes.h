// Messages from and to the byte buffers of gRPC. The services take raw bytes, so that a message
// that does not parse can be told from the end of a stream, and big fields can be moved out.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

namespace attn::server {

// False if the bytes are no such message. Takes the bytes.
bool ParseBytes(grpc::ByteBuffer* bytes, google::protobuf::Message* out);

// REQUIRES: the message is below 2 GiB (the codec limits answers to max_message_bytes).
grpc::ByteBuffer SerializeBytes(const google::protobuf::Message& message);

}  // namespace attn::server
