// Tensors of the wire: checked against the dtype and shape that the request fixes; the bytes are
// moved, never copied.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/dtype.h"
#include "attn/v1/attention.pb.h"

namespace attn::server {

// [rows, heads, head_dim] of one of q, k, v.
struct TensorShape {
  uint64_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  DType dtype = DType::kFloat32;

  // REQUIRES: rows below 2^32, heads and head_dim within WireLimits (so that it fits 64 bits).
  uint64_t num_bytes() const { return rows * heads * head_dim * SizeOf(dtype); }
};

// Takes the bytes out of `tensor`, null if the request has none, which is right for no rows only.
// INVALID names the field, what came and what is wanted.
absl::StatusOr<std::string> TakeTensor(v1::Tensor* tensor, const TensorShape& want,
                                       absl::string_view field);

// The bytes are moved in.
void EncodeTensor(std::string bytes, DType dtype, std::initializer_list<int64_t> shape,
                  v1::Tensor* out);

}  // namespace attn::server
