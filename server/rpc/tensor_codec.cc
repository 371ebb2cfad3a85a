#include "server/rpc/tensor_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

absl::Status CheckShape(const v1::Tensor& tensor, const TensorShape& want,
                        absl::string_view field) {
  if (tensor.shape_size() == 0) return absl::OkStatus();
  const bool same =
      tensor.shape_size() == 3 && static_cast<uint64_t>(tensor.shape(0)) == want.rows &&
      tensor.shape(1) == int64_t{want.heads} && tensor.shape(2) == int64_t{want.head_dim};
  if (same) return absl::OkStatus();
  constexpr int kShown = 8;
  const int shown = std::min(tensor.shape_size(), kShown);
  return MakeError(
      Reason::kInvalid, absl::StrCat(field, ".shape"),
      absl::StrCat(
          "got [", absl::StrJoin(tensor.shape().begin(), tensor.shape().begin() + shown, ", "),
          tensor.shape_size() > kShown ? ", ..." : "", "], want ", want.Text(), " or none"));
}

}  // namespace

absl::StatusOr<std::string> TakeTensor(v1::Tensor* tensor, const TensorShape& want,
                                       absl::string_view field) {
  const uint64_t want_bytes = want.num_bytes();
  if (tensor == nullptr) {
    if (want_bytes == 0) return std::string();
    return MakeError(Reason::kInvalid, field,
                     absl::StrCat("got none, want ", want.Text(), " of ", NameOf(want.dtype)));
  }
  ATTN_RETURN_IF_ERROR(CheckKnown(*tensor, field));
  if (tensor->dtype() != EncodeDType(want.dtype)) {
    const bool is_known = v1::DataType_IsValid(tensor->dtype());
    return MakeError(is_known ? Reason::kInvalid : Reason::kUnsupported,
                     absl::StrCat(field, ".dtype"),
                     absl::StrCat("got ", NameOfDataType(tensor->dtype()), ", want ",
                                  NameOfDataType(EncodeDType(want.dtype))));
  }
  ATTN_RETURN_IF_ERROR(CheckShape(*tensor, want, field));
  if (tensor->data_case() != v1::Tensor::kRaw && want_bytes != 0) {
    return MakeError(Reason::kInvalid, absl::StrCat(field, ".data"),
                     absl::StrCat("got none set, want raw with ", want_bytes, " bytes"));
  }
  ATTN_RETURN_IF_ERROR(CheckTensorBytes(tensor->raw().size(), want, absl::StrCat(field, ".raw")));
  if (want_bytes == 0) return std::string();
  return std::move(*tensor->mutable_raw());
}

void EncodeTensor(std::string bytes, DType dtype, std::initializer_list<int64_t> shape,
                  v1::Tensor* out) {
  out->set_dtype(EncodeDType(dtype));
  out->mutable_shape()->Assign(shape.begin(), shape.end());
  out->set_raw(std::move(bytes));
}

}  // namespace attn::server
