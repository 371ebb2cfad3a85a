// Enum values of the wire and of the core. A value that is not known is refused by name.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/dtype.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"

namespace attn::server {

// UNSPECIFIED is NORMAL.
absl::StatusOr<Priority> DecodePriority(v1::Priority priority, absl::string_view field);
// FLOAT32, FLOAT16 or BFLOAT16; UNSPECIFIED is INVALID, all else UNSUPPORTED.
absl::StatusOr<DType> DecodeFloatType(v1::DataType dtype, absl::string_view field);
v1::DataType EncodeDType(DType dtype);
// "DATA_TYPE_INT8", or the bare number of a value that is not known.
std::string NameOfDataType(v1::DataType dtype);

}  // namespace attn::server
