// Declaring and removing models, and the memory behind their pages.
#include "server/core/model_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/wire_field.h"

namespace attn::server {
namespace {

// The same refusal with the path of the layer group before its field.
absl::Status InGroup(size_t group, const absl::Status& status) {
  const std::string field = FieldOf(status);
  absl::string_view text = status.message();
  if (!field.empty()) absl::ConsumePrefix(&text, absl::StrCat(field, ": "));
  const std::string path = absl::StrCat("spec.layer_groups[", group, "]");
  return MakeError(ReasonOf(status), field.empty() ? path : absl::StrCat(path, ".", field), text);
}

kvcache::CacheModel CacheModelOf(const ModelDefinition& definition, const Backend& backend) {
  kvcache::CacheModel model;
  model.num_layers = definition.num_layers;
  model.page_size = definition.page_size;
  for (const ModelGroup& group : definition.groups) {
    model.groups.push_back({group.layers, backend.PageBytes(group.spec)});
  }
  return model;
}

std::shared_ptr<const Model> MakeModel(const ModelDefinition& definition, ModelSlot slot) {
  auto model = std::make_shared<Model>();
  model->definition = definition;
  model->slot = slot;
  model->group_of_layer.resize(definition.num_layers);
  model->index_in_group.resize(definition.num_layers);
  for (uint32_t g = 0; g < definition.groups.size(); ++g) {
    const ModelGroup& group = definition.groups[g];
    const AttentionSpec& spec = group.spec;
    model->kv_bytes_per_token += uint64_t{group.layers.size()} * spec.num_kv_heads *
                                 (spec.head_dim_qk + spec.head_dim_v) * SizeOf(spec.kv_dtype);
    for (uint32_t i = 0; i < group.layers.size(); ++i) {
      model->group_of_layer[group.layers[i]] = g;
      model->index_in_group[group.layers[i]] = i;
    }
  }
  return model;
}

// Names of AttentionSpec fields as ModelSpec and LayerGroup have them.
std::string FirstDifference(const AttentionSpec& a, const AttentionSpec& b) {
  const ScoreSpec& s = a.score;
  const ScoreSpec& t = b.score;
  if (a.num_q_heads != b.num_q_heads) return "num_q_heads";
  if (a.num_kv_heads != b.num_kv_heads) return "num_kv_heads";
  if (a.head_dim_qk != b.head_dim_qk) return "head_dim_qk";
  if (a.head_dim_v != b.head_dim_v) return "head_dim_v";
  if (s.softmax_scale != t.softmax_scale) return "softmax_scale";
  if (s.logit_soft_cap != t.logit_soft_cap) return "logit_soft_cap";
  if (s.window.left != t.window.left) return "window.left";
  if (s.window.right != t.window.right) return "window.right";
  if (s.sink_logits_per_head != t.sink_logits_per_head) return "sink_logits_per_head";
  if (s.sink_logits != t.sink_logits) return "sink_logits";
  return "";
}

}  // namespace

std::string FirstDifference(const ModelDefinition& a, const ModelDefinition& b) {
  if (a.groups.empty() || b.groups.empty()) return "spec.layer_groups";
  const AttentionSpec& s = a.groups[0].spec;
  const AttentionSpec& t = b.groups[0].spec;
  if (s.activation_dtype != t.activation_dtype) return "spec.activation_dtype";
  if (s.kv_dtype != t.kv_dtype) return "spec.kv_dtype";
  if (a.page_size != b.page_size) return "spec.page_size";
  if (a.num_layers != b.num_layers) return "spec.num_layers";
  if (a.groups.size() != b.groups.size()) return "spec.layer_groups";
  for (size_t g = 0; g < a.groups.size(); ++g) {
    const std::string path = absl::StrCat("spec.layer_groups[", g, "].");
    if (a.groups[g].layers != b.groups[g].layers) return path + "layers";
    const std::string field = FirstDifference(a.groups[g].spec, b.groups[g].spec);
    if (!field.empty()) return path + field;
    if (a.groups[g].window_slack != b.groups[g].window_slack) return path + "window_slack";
  }
  if (a.content_tag != b.content_tag) return "spec.content_tag";
  if (a.fingerprint != b.fingerprint) return "spec";
  return "";
}

ModelTable::~ModelTable() = default;

absl::Status ModelTable::CheckDefinition(const ModelDefinition& definition) const {
  std::vector<bool> seen(definition.num_layers, false);
  size_t num_seen = 0;
  for (size_t g = 0; g < definition.groups.size(); ++g) {
    const ModelGroup& group = definition.groups[g];
    for (const uint32_t layer : group.layers) {
      if (layer >= definition.num_layers || seen[layer]) {
        return MakeError(Reason::kInvalid, absl::StrCat("spec.layer_groups[", g, "].layers"),
                         absl::StrCat("got layer ", layer, ", want each of 0..",
                                      int64_t{definition.num_layers} - 1, " once"));
      }
      seen[layer] = true;
      ++num_seen;
    }
    absl::Status usable = Validate(group.spec);
    if (usable.ok()) usable = backend_->Supports(group.spec);
    if (!usable.ok()) return InGroup(g, usable);
    ATTN_CHECK(group.spec.num_layers == group.layers.size(), "group ", g, " has ",
               group.layers.size(), " layers, its spec ", group.spec.num_layers);
    ATTN_CHECK(group.spec.page_size == definition.page_size, "group ", g);
  }
  if (definition.num_layers == 0 || num_seen != definition.num_layers) {
    return MakeError(Reason::kInvalid, "spec.layer_groups",
                     absl::StrCat("got ", num_seen, " layers, want all of 1 or more, here ",
                                  definition.num_layers));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSlot> ModelTable::FreeSlot() {
  if (entries_.size() >= UINT16_MAX) {
    return MakeError(Reason::kQuota, "spec.name",
                     absl::StrCat("got one more model, want at most ", UINT16_MAX));
  }
  // Round robin, so that the ids of a removed model stay unknown for long.
  do {
    ++last_slot_;
  } while (last_slot_ == 0 || entries_.contains(ModelSlot(last_slot_)));
  return ModelSlot(last_slot_);
}

absl::Status ModelTable::Build(const ModelDefinition& definition, ModelSlot slot, Entry& entry) {
  const kvcache::CacheModel cache_model = CacheModelOf(definition, *backend_);
  entry.model = MakeModel(definition, slot);
  for (uint32_t g = 0; g < definition.groups.size(); ++g) {
    auto store = std::make_unique<GroupStore>();
    store->group = g;
    store->spec = definition.groups[g].spec;
    store->geometry = cache_->GeometryOf(cache_model, g);
    store->last_launch_of_layer.resize(store->spec.num_layers, 0);
    auto kv = backend_->CreateKvStore(store->spec, {.num_pages = store->geometry.num_pages});
    if (!kv.ok()) return InGroup(g, kv.status());
    store->kv = std::move(*kv);
    entry.groups.push_back(std::move(store));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeclareModelResult> ModelTable::Declare(const ModelDefinition& definition) {
  if (ModelPtr existing = registry_->FindByName(definition.name); existing != nullptr) {
    const std::string field = FirstDifference(existing->definition, definition);
    if (field.empty()) return DeclareModelResult{std::move(existing), true};
    return MakeError(Reason::kModelExists, field,
                     absl::StrCat("model ", definition.name,
                                  " exists with another value; want an equal spec, or another "
                                  "name"));
  }
  ATTN_RETURN_IF_ERROR(CheckDefinition(definition));
  ATTN_ASSIGN_OR_RETURN(const ModelSlot slot, FreeSlot());
  Entry& entry = entries_[slot];
  absl::Status added = Build(definition, slot, entry);
  if (added.ok()) added = cache_->AddModelAt(slot, CacheModelOf(definition, *backend_));
  if (!added.ok()) {
    entries_.erase(slot);
    return added;
  }
  registry_->Add(entry.model);
  return DeclareModelResult{entry.model, false};
}

absl::Status ModelTable::Remove(const std::string& name) {
  const ModelPtr model = registry_->FindByName(name);
  if (model == nullptr) {
    return MakeError(Reason::kUnknownModel, "name",
                     absl::StrCat("got ", name, ", want the name of a declared model"));
  }
  if (absl::Status removed = cache_->RemoveModel(model->slot); !removed.ok()) {
    return WithField(removed, "name");
  }
  registry_->Remove(model->slot);
  entries_.erase(model->slot);
  return absl::OkStatus();
}

const Model* ModelTable::Find(ModelSlot slot) const {
  const auto entry = entries_.find(slot);
  return entry == entries_.end() ? nullptr : entry->second.model.get();
}

GroupStore& ModelTable::StoreOf(const Model& model, uint32_t group) {
  return *entries_.at(model.slot).groups[group];
}

absl::Status ModelTable::CommitSlab(ModelSlot model, uint32_t group, int32_t slab) {
  GroupStore& store = *entries_.at(model).groups[group];
  const PageId first = slab * store.geometry.pages_per_slab;
  return store.kv->CommitPages(
      first, std::min(store.geometry.pages_per_slab, store.geometry.num_pages - first));
}

void ModelTable::ReleaseSlab(ModelSlot model, uint32_t group, int32_t slab) {
  const auto entry = entries_.find(model);
  if (entry == entries_.end()) return;
  GroupStore& store = *entry->second.groups[group];
  const PageId first = slab * store.geometry.pages_per_slab;
  store.kv->ReleasePages(first,
                         std::min(store.geometry.pages_per_slab, store.geometry.num_pages - first));
}

}  // namespace attn::server
