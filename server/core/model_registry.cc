// Look-ups of models by name and by slot.
#include "server/core/model_registry.h"

#include <utility>

#include "attn/base/check.h"

namespace attn::server {

ModelPtr ModelRegistry::FindByName(absl::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

ModelPtr ModelRegistry::FindBySlot(ModelSlot slot) const {
  std::lock_guard lock(mutex_);
  const auto found = by_slot_.find(slot);
  return found == by_slot_.end() ? nullptr : found->second;
}

std::vector<ModelPtr> ModelRegistry::List(absl::string_view after, size_t max) const {
  std::lock_guard lock(mutex_);
  std::vector<ModelPtr> models;
  for (auto model = by_name_.upper_bound(after); model != by_name_.end() && models.size() < max;
       ++model) {
    models.push_back(model->second);
  }
  return models;
}

size_t ModelRegistry::size() const {
  std::lock_guard lock(mutex_);
  return by_slot_.size();
}

void ModelRegistry::Add(ModelPtr model) {
  std::lock_guard lock(mutex_);
  const bool name_is_new = by_name_.emplace(model->definition.name, model).second;
  const bool slot_is_new = by_slot_.emplace(model->slot, model).second;
  ATTN_CHECK(name_is_new && slot_is_new, "model ", model->definition.name, " slot ",
             model->slot.value);
}

void ModelRegistry::Remove(ModelSlot slot) {
  std::lock_guard lock(mutex_);
  const auto found = by_slot_.find(slot);
  if (found == by_slot_.end()) return;
  by_name_.erase(found->second->definition.name);
  by_slot_.erase(found);
}

}  // namespace attn::server
