#include "attention/cuda/backend/supported_spec.h"

#include "absl/strings/str_cat.h"
#include "attention/cuda/tile/row_map.h"
#include "attention/score/lower.h"
#include "attn/attention/batch.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

constexpr uint32_t kMaxQHeads = 1024;
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxPageSize = 1u << 16;

absl::Status CheckHeadDim(const char* field, uint32_t head_dim) {
  if (head_dim == kKvHeadDim) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   absl::StrCat("got ", head_dim, ", the CUDA backend supports ", kKvHeadDim));
}

// Queries that were given as float32 would have to be rounded, so only what the kernels read is
// taken.
absl::Status CheckDType(const char* field, DType dtype) {
  if (dtype == DType::kBFloat16) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   absl::StrCat("got ", NameOf(dtype), ", the CUDA backend supports bfloat16"));
}

absl::Status CheckAtMost(const char* field, uint32_t value, uint32_t most) {
  if (value <= most) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   absl::StrCat("got ", value, ", the CUDA backend supports 1 to ", most));
}

}  // namespace

absl::Status CheckSupported(const AttentionSpec& spec) {
  ATTN_RETURN_IF_ERROR(Validate(spec));
  ATTN_RETURN_IF_ERROR(CheckHeadDim("head_dim_qk", spec.head_dim_qk));
  ATTN_RETURN_IF_ERROR(CheckHeadDim("head_dim_v", spec.head_dim_v));
  ATTN_RETURN_IF_ERROR(CheckDType("activation_dtype", spec.activation_dtype));
  ATTN_RETURN_IF_ERROR(CheckDType("kv_dtype", spec.kv_dtype));
  ATTN_RETURN_IF_ERROR(CheckAtMost("page_size", spec.page_size, kMaxPageSize));
  ATTN_RETURN_IF_ERROR(CheckAtMost("num_layers", spec.num_layers, kMaxLayers));
  ATTN_RETURN_IF_ERROR(CheckAtMost("num_q_heads", spec.num_q_heads, kMaxQHeads));
  if (spec.group_size() > kMaxGroupSize) {
    return MakeError(Reason::kUnsupported, "num_kv_heads",
                     absl::StrCat("got ", spec.num_kv_heads, " for ", spec.num_q_heads,
                                  " query heads, the CUDA backend supports at most ", kMaxGroupSize,
                                  " query heads for each"));
  }
  return absl::OkStatus();
}

KvPool PoolOf(const AttentionSpec& spec, int32_t num_pages, uint8_t* base) {
  return WithLog2({base, num_pages, static_cast<int32_t>(spec.num_layers),
                   static_cast<int32_t>(spec.num_kv_heads), static_cast<int32_t>(spec.page_size)});
}

LaunchScore ScoreOf(const AttentionSpec& spec, const float* sinks) {
  AttendEntry any;
  any.causal = false;
  const score::LoweredScore lowered = score::Lower(spec, any);
  LaunchScore score;
  score.query_factor = lowered.query_factor;
  score.op = lowered.op;
  score.natural_scale = lowered.natural_scale;
  score.log2_scale = lowered.log2_scale;
  score.range = lowered.range;
  score.sinks = sinks;
  score.num_sinks = lowered.num_sinks;
  return score;
}

}  // namespace attn::cuda
