// The lease half of KvCache: LeaseTable knows owners, this closes what has run out.
#include "absl/container/flat_hash_set.h"
#include "attn/base/check.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/cache_state.h"

namespace attn::kvcache {
KvCache::Renewal KvCache::Renew(const std::string& owner, Nanos lease, Nanos now) {
  return {.num_sequences = state_->leases.Renew(owner, lease, now), .lost = {}};
}

void KvCache::Touch(SequenceId id, Nanos now) {
  if (const Sequence* const sequence = state_->Find(id)) {
    state_->leases.Touch(sequence->owner(), now);
  }
}

void KvCache::AddUse(SequenceId id) {
  Sequence& sequence = state_->Get(id);
  ++sequence.num_uses;
  state_->leases.AddUse(sequence.owner());
}

void KvCache::DropUse(SequenceId id) {
  Sequence* const sequence = state_->Find(id);
  if (sequence == nullptr) return;
  ATTN_CHECK(sequence->num_uses > 0, "sequence ", id.value, " is not in use");
  --sequence->num_uses;
  state_->leases.DropUse(sequence->owner());
}

std::vector<SequenceId> KvCache::Expire(Nanos now, std::vector<ExpiredOwner>* owners) {
  std::vector<SequenceId> expired = state_->leases.Expired(now);
  absl::flat_hash_set<const Owner*> seen;
  for (const SequenceId id : expired) {
    const Owner* const owner = state_->Get(id).owner();
    if (owners == nullptr || !seen.insert(owner).second) continue;
    owners->push_back({owner->name, static_cast<uint32_t>(owner->sequences.size())});
  }
  for (const SequenceId id : expired) state_->Close(state_->Get(id));
  return expired;
}

Nanos KvCache::NextExpiry() const { return state_->leases.NextExpiry(); }

}  // namespace attn::kvcache
