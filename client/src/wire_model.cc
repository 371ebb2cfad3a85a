#include "client/src/wire_model.h"

#include "client/src/wire_dtype.h"

namespace attn::client {
namespace {

void GroupToWire(const LayerGroup& group, v1::LayerGroup* wire) {
  wire->mutable_layers()->Assign(group.layers.begin(), group.layers.end());
  wire->set_num_q_heads(group.num_q_heads);
  wire->set_num_kv_heads(group.num_kv_heads);
  wire->set_head_dim_qk(group.head_dim_qk);
  wire->set_head_dim_v(group.head_dim_v);
  if (group.softmax_scale.has_value()) wire->set_softmax_scale(*group.softmax_scale);
  wire->set_logit_soft_cap(group.logit_soft_cap);
  if (group.window.left.has_value()) wire->mutable_window()->set_left(*group.window.left);
  if (group.window.right.has_value()) wire->mutable_window()->set_right(*group.window.right);
  wire->set_sink_logits_per_head(group.sink_logits_per_head);
  wire->mutable_sink_logits()->Assign(group.sink_logits.begin(), group.sink_logits.end());
  wire->set_window_slack(group.window_slack);
}

LayerGroup GroupFromWire(const v1::LayerGroup& wire) {
  LayerGroup group;
  group.layers.assign(wire.layers().begin(), wire.layers().end());
  group.num_q_heads = wire.num_q_heads();
  group.num_kv_heads = wire.num_kv_heads();
  group.head_dim_qk = wire.head_dim_qk();
  group.head_dim_v = wire.head_dim_v();
  if (wire.has_softmax_scale()) group.softmax_scale = wire.softmax_scale();
  group.logit_soft_cap = wire.logit_soft_cap();
  if (wire.window().has_left()) group.window.left = wire.window().left();
  if (wire.window().has_right()) group.window.right = wire.window().right();
  group.sink_logits_per_head = wire.sink_logits_per_head();
  group.sink_logits.assign(wire.sink_logits().begin(), wire.sink_logits().end());
  group.window_slack = wire.window_slack();
  return group;
}

std::vector<DType> KnownDtypes(const google::protobuf::RepeatedField<int>& wire) {
  std::vector<DType> dtypes;
  for (const int dtype : wire) {
    const auto known = FromWire(static_cast<v1::DataType>(dtype));
    if (known.has_value()) dtypes.push_back(*known);
  }
  return dtypes;
}

}  // namespace

void ToWire(const ModelSpec& spec, v1::ModelSpec* wire) {
  wire->set_name(spec.name);
  wire->set_activation_dtype(ToWire(spec.activation_dtype));
  if (spec.kv_dtype.has_value()) wire->set_kv_dtype(ToWire(*spec.kv_dtype));
  wire->set_page_size(spec.page_size);
  wire->set_num_layers(spec.num_layers);
  for (const LayerGroup& group : spec.layer_groups) GroupToWire(group, wire->add_layer_groups());
  wire->set_content_tag(spec.content_tag);
}

ModelInfo FromWire(const v1::ModelInfo& wire) {
  ModelInfo info;
  info.spec.name = wire.spec().name();
  info.spec.activation_dtype = FromWire(wire.spec().activation_dtype()).value_or(DType::kFloat32);
  info.spec.kv_dtype = FromWire(wire.spec().kv_dtype());
  info.spec.page_size = wire.spec().page_size();
  info.spec.num_layers = wire.spec().num_layers();
  for (const v1::LayerGroup& group : wire.spec().layer_groups()) {
    info.spec.layer_groups.push_back(GroupFromWire(group));
  }
  info.spec.content_tag = wire.spec().content_tag();
  info.fingerprint = wire.fingerprint();
  info.kv_bytes_per_token = wire.kv_bytes_per_token();
  return info;
}

ServerInfo FromWire(const v1::GetServerInfoResponse& wire) {
  ServerInfo info;
  info.version = wire.version();
  info.server_epoch = wire.server_epoch();
  info.device = wire.device();
  info.activation_dtypes = KnownDtypes(wire.activation_dtypes());
  info.kv_dtypes = KnownDtypes(wire.kv_dtypes());
  info.page_sizes.assign(wire.page_sizes().begin(), wire.page_sizes().end());
  const v1::Limits& limits = wire.limits();
  info.limits.max_message_bytes = limits.max_message_bytes();
  info.limits.max_items_per_request = limits.max_items_per_request();
  info.limits.max_q_rows_per_request = limits.max_q_rows_per_request();
  info.limits.max_sequence_len = limits.max_sequence_len();
  info.limits.max_open_sequences = limits.max_open_sequences();
  info.limits.max_in_flight_per_stream = limits.max_in_flight_per_stream();
  info.limits.min_lease_ms = limits.min_lease_ms();
  info.limits.max_lease_ms = limits.max_lease_ms();
  info.limits.remembered_appends = limits.remembered_appends();
  return info;
}

}  // namespace attn::client
