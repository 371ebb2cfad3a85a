// What the engine knows of a sequence beyond the cache: its priority, and the stream it closes
// with. Only sequences that differ from the default are noted.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "attn/base/ids.h"
#include "server/core/call.h"

namespace attn::server {

struct Traits {
  Priority priority = Priority::kNormal;
  std::weak_ptr<StreamScope> closes_with;
  bool closes_with_stream = false;
};

// Engine thread only.
class SequenceTraits {
 public:
  void Set(SequenceId sequence, Traits traits) {
    if (traits.priority == Priority::kNormal && !traits.closes_with_stream) return;
    traits_.insert_or_assign(sequence, std::move(traits));
  }
  Traits Get(SequenceId sequence) const {
    const auto found = traits_.find(sequence);
    return found == traits_.end() ? Traits{} : found->second;
  }
  bool Has(SequenceId sequence) const { return traits_.contains(sequence); }
  void Erase(SequenceId sequence) { traits_.erase(sequence); }
  size_t size() const { return traits_.size(); }

  // A call that does not say otherwise has the priority of its sequence.
  Priority PriorityOf(Priority call, SequenceId sequence) const {
    if (call != Priority::kNormal || traits_.empty()) return call;
    const auto found = traits_.find(sequence);
    return found == traits_.end() ? call : found->second.priority;
  }

 private:
  absl::flat_hash_map<SequenceId, Traits> traits_;
};

}  // namespace attn::server
