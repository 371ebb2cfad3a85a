#include "server/core/model_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/request_check.h"
#include "server/core/wire_field.h"

namespace attn::server {
namespace {

absl::Status Invalid(absl::string_view path, absl::string_view field, absl::string_view message) {
  return MakeError(Reason::kInvalid, absl::StrCat(path, ".", field), message);
}

absl::Status CheckRange(uint64_t value, uint64_t low, uint64_t high, absl::string_view path,
                        absl::string_view field) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(path, field, absl::StrCat("got ", value, ", want ", low, " to ", high));
}

absl::Status CheckName(const std::string& name, absl::string_view path) {
  const auto legal = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), legal)) {
    return absl::OkStatus();
  }
  return Invalid(path, "name",
                 absl::StrCat("got ", Quoted(name), " of ", name.size(),
                              " bytes, want 1 to 128 of A-Z a-z 0-9 . _ -"));
}

// Every layer 0..num_layers-1 stands in exactly one group.
absl::Status CheckLayers(const ModelDefinition& definition, absl::string_view path) {
  std::vector<bool> seen(definition.num_layers, false);
  uint64_t count = 0;
  for (size_t g = 0; g < definition.groups.size(); ++g) {
    const std::vector<uint32_t>& layers = definition.groups[g].layers;
    const std::string group_path = absl::StrCat(path, ".layer_groups[", g, "]");
    if (layers.empty()) return Invalid(group_path, "layers", "got 0 entries, want at least 1");
    for (size_t i = 0; i < layers.size(); ++i, ++count) {
      const std::string field = absl::StrCat("layers[", i, "]");
      ATTN_RETURN_IF_ERROR(CheckRange(layers[i], 0, definition.num_layers - 1, group_path, field));
      if (seen[layers[i]]) {
        return Invalid(group_path, field,
                       absl::StrCat("got ", layers[i], " again, want each layer in one group"));
      }
      seen[layers[i]] = true;
    }
  }
  if (count == definition.num_layers) return absl::OkStatus();
  return Invalid(path, "layer_groups",
                 absl::StrCat("got ", count, " layers in all groups, want num_layers ",
                              definition.num_layers));
}

// A finite range that AttentionSpec's own validation does not know: counts that size memory.
absl::Status CheckGroupCounts(const AttentionSpec& spec, const WireLimits& limits,
                              absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckRange(spec.num_q_heads, 1, limits.max_heads, path, "num_q_heads"));
  ATTN_RETURN_IF_ERROR(CheckRange(spec.num_kv_heads, 1, limits.max_heads, path, "num_kv_heads"));
  if (spec.num_q_heads % spec.num_kv_heads != 0) {
    return Invalid(path, "num_kv_heads",
                   absl::StrCat("got ", spec.num_kv_heads, ", want a divisor of num_q_heads ",
                                spec.num_q_heads));
  }
  ATTN_RETURN_IF_ERROR(CheckRange(spec.head_dim_qk, 1, limits.max_head_dim, path, "head_dim_qk"));
  ATTN_RETURN_IF_ERROR(CheckRange(spec.head_dim_v, 1, limits.max_head_dim, path, "head_dim_v"));
  const ScoreSpec& score = spec.score;
  ATTN_RETURN_IF_ERROR(CheckRange(score.sink_logits_per_head, 0, limits.max_sink_logits_per_head,
                                  path, "sink_logits_per_head"));
  const uint64_t sinks = uint64_t{spec.num_layers} * spec.num_q_heads * score.sink_logits_per_head;
  if (score.sink_logits.size() == sinks) return absl::OkStatus();
  return Invalid(path, "sink_logits",
                 absl::StrCat("got ", score.sink_logits.size(), " entries, want ", sinks,
                              " (layers x num_q_heads x sink_logits_per_head)"));
}

absl::Status CheckScore(const ScoreSpec& score, absl::string_view path) {
  if (!std::isfinite(score.softmax_scale)) {
    return Invalid(path, "softmax_scale",
                   absl::StrCat("got ", score.softmax_scale, ", want a finite number"));
  }
  if (!std::isfinite(score.logit_soft_cap) || score.logit_soft_cap < 0) {
    return Invalid(
        path, "logit_soft_cap",
        absl::StrCat("got ", score.logit_soft_cap, ", want 0 (none) or a finite number above 0"));
  }
  for (size_t i = 0; i < score.sink_logits.size(); ++i) {
    if (std::isfinite(score.sink_logits[i])) continue;
    return Invalid(path, absl::StrCat("sink_logits[", i, "]"),
                   absl::StrCat("got ", score.sink_logits[i], ", want a finite number"));
  }
  return absl::OkStatus();
}

// The field of a backend's refusal is one of AttentionSpec's; whoever declares the model knows it
// as the group's, or as the model's.
absl::Status AtGroup(const absl::Status& status, absl::string_view path,
                     absl::string_view group_path) {
  if (status.ok()) return status;
  const std::string field = FieldOf(status);
  const bool is_models = field == "page_size" || field == "activation_dtype" || field == "kv_dtype";
  return WithField(status, absl::StrCat(is_models ? path : group_path, ".", field));
}

}  // namespace

absl::Status CheckDefinition(const ModelDefinition& definition, const WireLimits& limits,
                             const SupportsSpec& supports, absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckName(definition.name, path));
  ATTN_RETURN_IF_ERROR(CheckRange(definition.num_layers, 1, limits.max_layers, path, "num_layers"));
  ATTN_RETURN_IF_ERROR(
      CheckRange(definition.page_size, 0, limits.max_page_size, path, "page_size"));
  ATTN_RETURN_IF_ERROR(CheckRange(definition.content_tag.size(), 0, limits.max_content_tag_bytes,
                                  path, "content_tag"));
  ATTN_RETURN_IF_ERROR(CheckLayers(definition, path));
  for (size_t g = 0; g < definition.groups.size(); ++g) {
    const AttentionSpec& spec = definition.groups[g].spec;
    const std::string group_path = absl::StrCat(path, ".layer_groups[", g, "]");
    ATTN_RETURN_IF_ERROR(CheckGroupCounts(spec, limits, group_path));
    ATTN_RETURN_IF_ERROR(CheckScore(spec.score, group_path));
    ATTN_RETURN_IF_ERROR(AtGroup(Validate(spec), path, group_path));
    ATTN_RETURN_IF_ERROR(AtGroup(supports(spec), path, group_path));
  }
  return absl::OkStatus();
}

}  // namespace attn::server
