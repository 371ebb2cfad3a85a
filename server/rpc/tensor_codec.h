// Tensors of the wire: checked against the dtype and shape that the request fixes; the bytes are
// moved, never copied.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/dtype.h"
#include "attn/v1/attention.pb.h"
#include "server/core/attend_check.h"

namespace attn::server {

// Takes the bytes out of `tensor`, null if the request has none, which is right for no rows only.
// INVALID names the field, what came and what is wanted.
absl::StatusOr<std::string> TakeTensor(v1::Tensor* tensor, const TensorShape& want,
                                       absl::string_view field);

// The bytes are moved in.
void EncodeTensor(std::string bytes, DType dtype, std::initializer_list<int64_t> shape,
                  v1::Tensor* out);

}  // namespace attn::server
