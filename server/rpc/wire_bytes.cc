#include "server/rpc/wire_bytes.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "attn/base/check.h"

namespace attn::server {

bool ParseBytes(grpc::ByteBuffer* bytes, google::protobuf::Message* out) {
  if (!bytes->Valid()) return false;
  grpc::ProtoBufferReader reader(bytes);
  const bool parsed = reader.status().ok() && out->ParseFromZeroCopyStream(&reader);
  bytes->Clear();
  return parsed;
}

grpc::ByteBuffer SerializeBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool owned = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                 &owned);
  ATTN_CHECK(status.ok(), "an answer could not be serialized: ", status.error_message());
  return bytes;
}

}  // namespace attn::server
