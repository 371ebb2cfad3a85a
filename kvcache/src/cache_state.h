// What a KvCache is made of. Private to the files that implement it: kv_cache.cc (models, ids and
// questions), lifecycle.cc (open, copy, cut, close), append.cc (Extend and Reservation), leases.cc
// and invariants.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/lease_table.h"
#include "kvcache/src/model_pools.h"
#include "kvcache/src/sequence.h"
#include "kvcache/src/slab_budget.h"

namespace attn::kvcache {

struct KvCache::State {
  // Outlives the model in it: the counter goes on when a slot is used again, so that ids of the old
  // model stay stale for ever.
  struct Slot {
    uint64_t last_counter = 0;  // of the ids given out
    std::unique_ptr<ModelPools> model;
  };

  explicit State(const KvCacheOptions& with)
      : options(with), budget(with.budget_bytes, with.backing) {}

  // Null if there is none.
  ModelPools* FindModel(ModelSlot slot) const {
    return slot.value < slots.size() ? slots[slot.value].model.get() : nullptr;
  }
  // Null if it is not open.
  Sequence* Find(SequenceId id) const {
    if (last_found != nullptr && last_found->id() == id) return last_found;
    const auto found = sequences.find(id);
    if (found == sequences.end()) return nullptr;
    return last_found = found->second.get();
  }
  // REQUIRES: it is open.
  Sequence& Get(SequenceId id) const;
  bool WasGivenOut(SequenceId id) const {
    return SlotOf(id).value < slots.size() && CounterOf(id) >= 1 &&
           CounterOf(id) <= slots[SlotOf(id).value].last_counter;
  }
  // Why an id that is not open is not.
  absl::Status WhyNotOpen(SequenceId id, absl::string_view field) const;
  // OK, or why `id` cannot become a sequence of `model`.
  absl::Status CheckCanOpen(SequenceId id, ModelSlot model, absl::string_view field) const;
  // OK, or why the sequence cannot be cut or copied now.
  absl::Status CheckSettled(const Sequence& sequence, absl::string_view field) const;
  absl::Status CheckRoomFor(uint64_t num_sequences) const;

  Sequence& Insert(SequenceId id, Owner* owner);
  void Close(Sequence& sequence);

  const KvCacheOptions options;
  SlabBudget budget;
  std::vector<Slot> slots;  // by ModelSlot; [0] is never used
  LeaseTable leases;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences;
  // The sequence found last: an append looks its sequence up several times.
  mutable Sequence* last_found = nullptr;
};

}  // namespace attn::kvcache
