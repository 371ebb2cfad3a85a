#include "server/rpc/enum_codec.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::server {

absl::StatusOr<Priority> DecodePriority(v1::Priority priority, absl::string_view field) {
  switch (priority) {
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case v1::PRIORITY_BATCH:
      return Priority::kBatch;
    case v1::PRIORITY_INTERACTIVE:
      return Priority::kInteractive;
    default:
      return MakeError(Reason::kUnsupported, field,
                       absl::StrCat("got ", static_cast<int>(priority), ", want 0 to ",
                                    static_cast<int>(v1::Priority_MAX)));
  }
}

std::string NameOfDataType(v1::DataType dtype) {
  if (v1::DataType_IsValid(dtype)) return v1::DataType_Name(dtype);
  return absl::StrCat(static_cast<int>(dtype));
}

absl::StatusOr<DType> DecodeFloatType(v1::DataType dtype, absl::string_view field) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DATA_TYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DATA_TYPE_BFLOAT16:
      return DType::kBFloat16;
    default:
      return MakeError(
          dtype == v1::DATA_TYPE_UNSPECIFIED ? Reason::kInvalid : Reason::kUnsupported, field,
          absl::StrCat("got ", NameOfDataType(dtype),
                       ", want DATA_TYPE_FLOAT32, DATA_TYPE_FLOAT16 or DATA_TYPE_BFLOAT16"));
  }
}

v1::DataType EncodeDType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

}  // namespace attn::server
