#include "server/rpc/model_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/wire_field.h"
#include "server/rpc/decode.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/model_fingerprint.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

absl::Status Invalid(absl::string_view path, absl::string_view field, absl::string_view message) {
  return MakeError(Reason::kInvalid, absl::StrCat(path, ".", field), message);
}

absl::Status RefuseFeature(bool used, absl::string_view path, absl::string_view field) {
  if (!used) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, absl::StrCat(path, ".", field),
                   "got a value, want none: this server does not have the feature");
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

// A finite range that AttentionSpec's own validation does not know: counts that size memory.
absl::Status CheckGroupCounts(const v1::LayerGroup& group, const WireLimits& limits,
                              absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckRange(group.num_q_heads(), 1, limits.max_heads, path, "num_q_heads"));
  ATTN_RETURN_IF_ERROR(CheckRange(group.num_kv_heads(), 1, limits.max_heads, path, "num_kv_heads"));
  if (group.num_q_heads() % group.num_kv_heads() != 0) {
    return Invalid(path, "num_kv_heads",
                   absl::StrCat("got ", group.num_kv_heads(), ", want a divisor of num_q_heads ",
                                group.num_q_heads()));
  }
  ATTN_RETURN_IF_ERROR(
      CheckRange(group.head_dim_qk(), 1, limits.max_head_dim, path, "head_dim_qk"));
  ATTN_RETURN_IF_ERROR(CheckRange(group.head_dim_v(), 1, limits.max_head_dim, path, "head_dim_v"));
  ATTN_RETURN_IF_ERROR(CheckRange(group.sink_logits_per_head(), 0, limits.max_sink_logits_per_head,
                                  path, "sink_logits_per_head"));
  const uint64_t sinks =
      uint64_t(group.layers_size()) * group.num_q_heads() * group.sink_logits_per_head();
  if (uint64_t(group.sink_logits_size()) == sinks) return absl::OkStatus();
  return Invalid(path, "sink_logits",
                 absl::StrCat("got ", group.sink_logits_size(), " entries, want ", sinks,
                              " (layers x num_q_heads x sink_logits_per_head)"));
}

absl::Status CheckScore(const v1::LayerGroup& group, absl::string_view path) {
  if (!std::isfinite(group.softmax_scale())) {
    return Invalid(path, "softmax_scale",
                   absl::StrCat("got ", group.softmax_scale(), ", want a finite number"));
  }
  if (!std::isfinite(group.logit_soft_cap()) || group.logit_soft_cap() < 0) {
    return Invalid(
        path, "logit_soft_cap",
        absl::StrCat("got ", group.logit_soft_cap(), ", want 0 (none) or a finite number above 0"));
  }
  for (int i = 0; i < group.sink_logits_size(); ++i) {
    if (std::isfinite(group.sink_logits(i))) continue;
    return Invalid(path, absl::StrCat("sink_logits[", i, "]"),
                   absl::StrCat("got ", group.sink_logits(i), ", want a finite number"));
  }
  return absl::OkStatus();
}

absl::Status RefuseUnbuilt(const v1::LayerGroup& group, absl::string_view path) {
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.alibi_slopes_size() > 0, path, "alibi_slopes"));
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.kv_source_layers_size() > 0, path, "kv_source_layers"));
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.window().always_visible_prefix() != 0, path,
                                     "window.always_visible_prefix"));
  return RefuseFeature(group.window().chunk_len() != 0, path, "window.chunk_len");
}

absl::StatusOr<ModelGroup> DecodeGroup(v1::LayerGroup* group, DType activation, DType kv,
                                       uint32_t page_size, const WireLimits& limits,
                                       absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckKnown(*group, path));
  if (group->has_window()) {
    ATTN_RETURN_IF_ERROR(CheckKnown(group->window(), absl::StrCat(path, ".window")));
  }
  ATTN_RETURN_IF_ERROR(RefuseUnbuilt(*group, path));
  if (group->head_dim_v() == 0) group->set_head_dim_v(group->head_dim_qk());
  ATTN_RETURN_IF_ERROR(CheckGroupCounts(*group, limits, path));
  if (!group->has_softmax_scale()) {
    group->set_softmax_scale(1.0f / std::sqrt(static_cast<float>(group->head_dim_qk())));
  }
  ATTN_RETURN_IF_ERROR(CheckScore(*group, path));

  ModelGroup out;
  out.layers.assign(group->layers().begin(), group->layers().end());
  out.window_slack = group->window_slack();
  out.spec.num_layers = static_cast<uint32_t>(group->layers_size());
  out.spec.num_q_heads = group->num_q_heads();
  out.spec.num_kv_heads = group->num_kv_heads();
  out.spec.head_dim_qk = group->head_dim_qk();
  out.spec.head_dim_v = group->head_dim_v();
  out.spec.activation_dtype = activation;
  out.spec.kv_dtype = kv;
  out.spec.page_size = page_size;
  out.spec.score.softmax_scale = group->softmax_scale();
  out.spec.score.logit_soft_cap = group->logit_soft_cap();
  if (group->window().has_left()) out.spec.score.window.left = group->window().left();
  if (group->window().has_right()) out.spec.score.window.right = group->window().right();
  out.spec.score.sink_logits_per_head = group->sink_logits_per_head();
  out.spec.score.sink_logits.assign(group->sink_logits().begin(), group->sink_logits().end());
  return out;
}

// Every layer 0..num_layers-1 stands in exactly one group.
absl::Status CheckLayers(const v1::ModelSpec& spec, absl::string_view path) {
  std::vector<bool> seen(spec.num_layers(), false);
  uint64_t count = 0;
  for (int g = 0; g < spec.layer_groups_size(); ++g) {
    const v1::LayerGroup& group = spec.layer_groups(g);
    const std::string group_path = absl::StrCat(path, ".layer_groups[", g, "]");
    if (group.layers_size() == 0) {
      return Invalid(group_path, "layers", "got 0 entries, want at least 1");
    }
    for (int i = 0; i < group.layers_size(); ++i, ++count) {
      const uint32_t layer = group.layers(i);
      const std::string field = absl::StrCat("layers[", i, "]");
      ATTN_RETURN_IF_ERROR(CheckRange(layer, 0, spec.num_layers() - 1, group_path, field));
      if (seen[layer]) {
        return Invalid(group_path, field,
                       absl::StrCat("got ", layer, " again, want each layer in one group"));
      }
      seen[layer] = true;
    }
  }
  if (count == spec.num_layers()) return absl::OkStatus();
  return Invalid(
      path, "layer_groups",
      absl::StrCat("got ", count, " layers in all groups, want num_layers ", spec.num_layers()));
}

absl::Status DecodeDTypes(v1::ModelSpec* spec, absl::string_view path, DType* activation,
                          DType* kv) {
  ATTN_ASSIGN_OR_RETURN(*activation, DecodeFloatType(spec->activation_dtype(),
                                                     absl::StrCat(path, ".activation_dtype")));
  if (spec->kv_dtype() == v1::DATA_TYPE_UNSPECIFIED) spec->set_kv_dtype(spec->activation_dtype());
  ATTN_ASSIGN_OR_RETURN(*kv, DecodeFloatType(spec->kv_dtype(), absl::StrCat(path, ".kv_dtype")));
  return absl::OkStatus();
}

// The server's choice for a new name; what was chosen before for a known one.
void FillPageSize(const ModelRegistry& registry, v1::ModelSpec* spec) {
  if (spec->page_size() != 0) return;
  const ModelPtr known = registry.FindByName(spec->name());
  spec->set_page_size(known == nullptr ? kDefaultPageSize : known->definition.page_size);
}

absl::Status CheckModel(const v1::ModelSpec& spec, const WireLimits& limits,
                        absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckKnown(spec, path));
  ATTN_RETURN_IF_ERROR(CheckName(spec.name(), path));
  ATTN_RETURN_IF_ERROR(CheckRange(spec.num_layers(), 1, limits.max_layers, path, "num_layers"));
  ATTN_RETURN_IF_ERROR(CheckRange(spec.page_size(), 0, limits.max_page_size, path, "page_size"));
  ATTN_RETURN_IF_ERROR(
      CheckRange(spec.content_tag().size(), 0, limits.max_content_tag_bytes, path, "content_tag"));
  return CheckLayers(spec, path);
}

// The field of a backend's refusal is one of AttentionSpec's; the client knows it as the group's,
// or as the model's.
absl::Status AtGroup(const absl::Status& status, absl::string_view path,
                     absl::string_view group_path) {
  if (status.ok()) return status;
  const std::string field = FieldOf(status);
  const bool is_models = field == "page_size" || field == "activation_dtype" || field == "kv_dtype";
  return WithField(status, absl::StrCat(is_models ? path : group_path, ".", field));
}

}  // namespace

absl::StatusOr<ModelDefinition> DecodeModelSpec(v1::ModelSpec spec, const WireLimits& limits,
                                                const ModelRegistry& registry,
                                                const SupportsSpec& supports,
                                                absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckModel(spec, limits, path));
  FillPageSize(registry, &spec);
  DType activation = DType::kFloat32;
  DType kv = DType::kFloat32;
  ATTN_RETURN_IF_ERROR(DecodeDTypes(&spec, path, &activation, &kv));
  ModelDefinition definition;
  for (int g = 0; g < spec.layer_groups_size(); ++g) {
    const std::string group_path = absl::StrCat(path, ".layer_groups[", g, "]");
    ATTN_ASSIGN_OR_RETURN(ModelGroup group, DecodeGroup(spec.mutable_layer_groups(g), activation,
                                                        kv, spec.page_size(), limits, group_path));
    ATTN_RETURN_IF_ERROR(AtGroup(Validate(group.spec), path, group_path));
    ATTN_RETURN_IF_ERROR(AtGroup(supports(group.spec), path, group_path));
    definition.groups.push_back(std::move(group));
  }
  definition.name = spec.name();
  definition.content_tag = spec.content_tag();
  definition.num_layers = spec.num_layers();
  definition.page_size = spec.page_size();
  definition.fingerprint = FingerprintOf(spec);
  definition.source = spec.SerializeAsString();
  return definition;
}

void EncodeModelInfo(const Model& model, v1::ModelInfo* out) {
  const bool parsed = out->mutable_spec()->ParseFromString(model.definition.source);
  ATTN_CHECK(parsed, "the source of model ", model.definition.name, " is no ModelSpec");
  out->set_fingerprint(model.definition.fingerprint);
  out->set_kv_bytes_per_token(model.kv_bytes_per_token);
}

}  // namespace attn::server
