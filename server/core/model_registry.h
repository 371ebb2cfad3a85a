// The models that exist now. Written by the engine thread, read by every thread.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/model.h"

namespace attn::server {

// Leaf lock; held for look-ups only.
class ModelRegistry {
 public:
  // Null if there is none. Any thread.
  ModelPtr FindByName(absl::string_view name) const;
  ModelPtr FindBySlot(ModelSlot slot) const;
  // Up to `max` models with names after `after`, in name order.
  std::vector<ModelPtr> List(absl::string_view after, size_t max) const;

  size_t size() const;

  // Engine thread. REQUIRES: name and slot are free.
  void Add(ModelPtr model);
  void Remove(ModelSlot slot);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ModelPtr, std::less<>> by_name_;
  std::map<ModelSlot, ModelPtr> by_slot_;
};

}  // namespace attn::server
