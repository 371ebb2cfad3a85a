#include "tests/rpc/codec_world.h"

#include <utility>
#include <vector>

#include "attn/base/check.h"

namespace attn::test {
namespace {

v1::LayerGroup* AddGroup(v1::ModelSpec* spec, uint32_t layer, uint32_t kv_heads) {
  v1::LayerGroup* group = spec->add_layer_groups();
  group->add_layers(layer);
  group->set_num_q_heads(CodecWorld::kQHeads);
  group->set_num_kv_heads(kv_heads);
  group->set_head_dim_qk(CodecWorld::kHeadDim);
  return group;
}

v1::ModelSpec TwoLayers(const char* name, uint32_t second_kv_heads) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_activation_dtype(v1::DATA_TYPE_FLOAT32);
  spec.set_num_layers(2);
  AddGroup(&spec, 0, CodecWorld::kKvHeads);
  AddGroup(&spec, 1, second_kv_heads)->mutable_window()->set_left(4);
  return spec;
}

server::ModelPtr MakeModel(v1::ModelSpec spec, uint16_t slot, const CodecWorld& world) {
  auto definition =
      server::DecodeModelSpec(std::move(spec), world.limits, world.registry, SupportsAll, "spec");
  ATTN_CHECK(definition.ok(), definition.status().ToString());
  auto model = std::make_shared<server::Model>();
  model->definition = *std::move(definition);
  model->slot = ModelSlot(slot);
  model->group_of_layer = {0, 1};
  model->index_in_group = {0, 0};
  return model;
}

}  // namespace

absl::Status SupportsAll(const AttentionSpec&) { return absl::OkStatus(); }

v1::ModelSpec SmallSpec() { return TwoLayers("small", CodecWorld::kKvHeads); }
v1::ModelSpec MixedSpec() { return TwoLayers("mixed", CodecWorld::kQHeads); }

CodecWorld::CodecWorld() {
  limits.max_items_per_request = 8;
  limits.max_q_rows_per_request = 64;
  limits.max_sequence_len = 1000;
  limits.max_message_bytes = 1 << 20;
  registry.Add(MakeModel(SmallSpec(), 1, *this));
  registry.Add(MakeModel(MixedSpec(), 2, *this));
}

void FillTensor(int64_t rows, int64_t heads, v1::Tensor* tensor) {
  std::vector<float> values(rows * heads * CodecWorld::kHeadDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  tensor->set_dtype(v1::DATA_TYPE_FLOAT32);
  tensor->clear_shape();
  for (const int64_t extent : {rows, heads, int64_t{CodecWorld::kHeadDim}}) {
    tensor->add_shape(extent);
  }
  tensor->set_raw(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

v1::AttendRequest GoodAttend(const CodecWorld& world, int num_items) {
  v1::AttendRequest request;
  request.set_server_epoch(CodecWorld::kEpoch);
  for (int i = 0; i < num_items; ++i) {
    request.add_sequence_ids(world.SmallId(i + 1));
    request.add_append_tokens(1000 + i);
  }
  request.add_layers(0);
  request.add_expected_lens(3);
  request.add_q_lens(1);
  request.add_kv_new_lens(1);
  FillTensor(num_items, CodecWorld::kQHeads, request.mutable_q());
  FillTensor(num_items, CodecWorld::kKvHeads, request.mutable_k());
  FillTensor(num_items, CodecWorld::kKvHeads, request.mutable_v());
  return request;
}

}  // namespace attn::test
