#include "server/rpc/model_codec.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/model_fingerprint.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

absl::Status RefuseFeature(bool used, absl::string_view path, absl::string_view field) {
  if (!used) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, absl::StrCat(path, ".", field),
                   "got a value, want none: this server does not have the feature");
}

absl::Status RefuseUnbuilt(const v1::LayerGroup& group, absl::string_view path) {
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.alibi_slopes_size() > 0, path, "alibi_slopes"));
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.kv_source_layers_size() > 0, path, "kv_source_layers"));
  ATTN_RETURN_IF_ERROR(RefuseFeature(group.window().always_visible_prefix() != 0, path,
                                     "window.always_visible_prefix"));
  return RefuseFeature(group.window().chunk_len() != 0, path, "window.chunk_len");
}

absl::Status CheckKnownGroup(const v1::LayerGroup& group, absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckKnown(group, path));
  if (group.has_window()) {
    ATTN_RETURN_IF_ERROR(CheckKnown(group.window(), absl::StrCat(path, ".window")));
  }
  return RefuseUnbuilt(group, path);
}

void FillGroup(v1::LayerGroup* group) {
  if (group->head_dim_v() == 0) group->set_head_dim_v(group->head_dim_qk());
  if (!group->has_softmax_scale()) {
    group->set_softmax_scale(1.0f / std::sqrt(static_cast<float>(group->head_dim_qk())));
  }
}

ModelGroup DecodeGroup(const v1::LayerGroup& group, DType activation, DType kv,
                       uint32_t page_size) {
  ModelGroup out;
  out.layers.assign(group.layers().begin(), group.layers().end());
  out.window_slack = group.window_slack();
  out.spec.num_layers = static_cast<uint32_t>(group.layers_size());
  out.spec.num_q_heads = group.num_q_heads();
  out.spec.num_kv_heads = group.num_kv_heads();
  out.spec.head_dim_qk = group.head_dim_qk();
  out.spec.head_dim_v = group.head_dim_v();
  out.spec.activation_dtype = activation;
  out.spec.kv_dtype = kv;
  out.spec.page_size = page_size;
  out.spec.score.softmax_scale = group.softmax_scale();
  out.spec.score.logit_soft_cap = group.logit_soft_cap();
  if (group.window().has_left()) out.spec.score.window.left = group.window().left();
  if (group.window().has_right()) out.spec.score.window.right = group.window().right();
  out.spec.score.sink_logits_per_head = group.sink_logits_per_head();
  out.spec.score.sink_logits.assign(group.sink_logits().begin(), group.sink_logits().end());
  return out;
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

}  // namespace

absl::StatusOr<ModelDefinition> DecodeModelSpec(v1::ModelSpec spec, const WireLimits& limits,
                                                const ModelRegistry& registry,
                                                const SupportsSpec& supports,
                                                absl::string_view path) {
  ATTN_RETURN_IF_ERROR(CheckKnown(spec, path));
  FillPageSize(registry, &spec);
  DType activation = DType::kFloat32;
  DType kv = DType::kFloat32;
  ATTN_RETURN_IF_ERROR(DecodeDTypes(&spec, path, &activation, &kv));
  ModelDefinition definition;
  for (int g = 0; g < spec.layer_groups_size(); ++g) {
    v1::LayerGroup* const group = spec.mutable_layer_groups(g);
    ATTN_RETURN_IF_ERROR(CheckKnownGroup(*group, absl::StrCat(path, ".layer_groups[", g, "]")));
    FillGroup(group);
    definition.groups.push_back(DecodeGroup(*group, activation, kv, spec.page_size()));
  }
  definition.name = spec.name();
  definition.content_tag = spec.content_tag();
  definition.num_layers = spec.num_layers();
  definition.page_size = spec.page_size();
  ATTN_RETURN_IF_ERROR(CheckDefinition(definition, limits, supports, path));
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
