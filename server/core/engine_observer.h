// What the engine tells of by itself: events that no answer to a call shows.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace attn::server {

// Engine thread; must not block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  // Once: the device computes no more.
  virtual void DeviceLost(const absl::Status&) {}
  // A model that was not there before; a model that was.
  virtual void ModelDeclared(const std::string&) {}
  virtual void ModelRemoved(const std::string&) {}
  // Nobody renewed the lease in time; `num_sequences` were closed.
  virtual void OwnerExpired(const std::string&, size_t) {}
};

}  // namespace attn::server
