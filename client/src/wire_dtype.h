// Element types of the wire.
#pragma once

#include <optional>

#include "attn/base/dtype.h"
#include "attn/v1/attention.pb.h"

namespace attn::client {

inline v1::DataType ToWire(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kFloat32:
      break;
  }
  return v1::DATA_TYPE_FLOAT32;
}

// Nothing for types this library does not know.
inline std::optional<DType> FromWire(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DATA_TYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DATA_TYPE_BFLOAT16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace attn::client
