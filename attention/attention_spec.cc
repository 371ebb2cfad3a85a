// Which specs mean something at all, whatever a backend supports.
#include "attn/attention/attention_spec.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn {
namespace {

absl::Status CheckPositive(const char* field, uint32_t value) {
  if (value > 0) return absl::OkStatus();
  return MakeError(Reason::kInvalid, field, "got 0, want at least 1");
}

absl::Status CheckDType(const char* field, DType dtype) {
  if (dtype <= DType::kBFloat16) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, field,
      absl::StrCat("got ", static_cast<int>(dtype), ", want float32, float16 or bfloat16"));
}

absl::Status CheckSinks(const AttentionSpec& spec) {
  const ScoreSpec& score = spec.score;
  const uint64_t wanted = uint64_t{spec.num_layers} * spec.num_q_heads * score.sink_logits_per_head;
  if (score.sink_logits.size() != wanted) {
    return MakeError(Reason::kInvalid, "sink_logits",
                     absl::StrCat("got ", score.sink_logits.size(), " values, want ", wanted,
                                  " (num_layers x num_q_heads x sink_logits_per_head)"));
  }
  for (size_t i = 0; i < score.sink_logits.size(); ++i) {
    if (!std::isfinite(score.sink_logits[i])) {
      return MakeError(Reason::kInvalid, absl::StrCat("sink_logits[", i, "]"),
                       absl::StrCat("got ", score.sink_logits[i], ", want a finite number"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckScore(const AttentionSpec& spec) {
  const ScoreSpec& score = spec.score;
  if (!std::isfinite(score.softmax_scale)) {
    return MakeError(Reason::kInvalid, "softmax_scale",
                     absl::StrCat("got ", score.softmax_scale, ", want a finite number"));
  }
  if (!std::isfinite(score.logit_soft_cap) || score.logit_soft_cap < 0) {
    return MakeError(
        Reason::kInvalid, "logit_soft_cap",
        absl::StrCat("got ", score.logit_soft_cap, ", want 0 (none) or a finite positive number"));
  }
  return CheckSinks(spec);
}

}  // namespace

absl::Status Validate(const AttentionSpec& spec) {
  ATTN_RETURN_IF_ERROR(CheckPositive("num_layers", spec.num_layers));
  ATTN_RETURN_IF_ERROR(CheckPositive("num_q_heads", spec.num_q_heads));
  ATTN_RETURN_IF_ERROR(CheckPositive("num_kv_heads", spec.num_kv_heads));
  ATTN_RETURN_IF_ERROR(CheckPositive("head_dim_qk", spec.head_dim_qk));
  ATTN_RETURN_IF_ERROR(CheckPositive("head_dim_v", spec.head_dim_v));
  ATTN_RETURN_IF_ERROR(CheckPositive("page_size", spec.page_size));
  if (spec.num_q_heads % spec.num_kv_heads != 0) {
    return MakeError(Reason::kInvalid, "num_kv_heads",
                     absl::StrCat("got ", spec.num_kv_heads, ", want a divisor of num_q_heads (",
                                  spec.num_q_heads, ")"));
  }
  ATTN_RETURN_IF_ERROR(CheckDType("activation_dtype", spec.activation_dtype));
  ATTN_RETURN_IF_ERROR(CheckDType("kv_dtype", spec.kv_dtype));
  return CheckScore(spec);
}

}  // namespace attn
