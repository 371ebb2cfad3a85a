// Who owns which sequences, and until when: leases belong to owners.
//
// An owner exists while it has sequences. Its own lease is the longest that an open asked for, or
// what a renewal has set since; any sign of life extends its expiry to now + that lease, never
// shortens it. Nothing of an owner expires while one of its sequences is in use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "attn/base/clock.h"
#include "attn/base/ids.h"

namespace attn::kvcache {

struct Owner {
  std::string name;
  uint64_t serial = 0;  // orders owners the same way in every run
  Nanos lease = 0;
  Nanos expires = 0;
  uint64_t num_uses = 0;  // of all its sequences
  // When the table looks at it next, at the latest `expires`; kNever: not until its last use ends.
  Nanos look_at = kNever;
  absl::flat_hash_set<SequenceId> sequences;

  Nanos Remaining(Nanos now) const { return std::max<Nanos>(0, expires - now); }
};

class LeaseTable {
 public:
  // A sequence of an owner that may be new. The pointer lives until the owner's last Leave.
  Owner* Join(const std::string& name, SequenceId sequence, Nanos lease, Nanos now);
  // One more sequence of an owner that has some; its lease does not move.
  void Join(Owner* owner, SequenceId sequence);
  // The sequence, of which num_uses uses are still counted, is gone. May delete the owner.
  void Leave(Owner* owner, SequenceId sequence, uint64_t num_uses);

  // The owner shows life: by its own lease.
  void Touch(Owner* owner, Nanos now);
  // Sets the own lease. Returns the owner's number of sequences.
  uint32_t Renew(const std::string& name, Nanos lease, Nanos now);
  void AddUse(Owner* owner);
  void DropUse(Owner* owner);

  // The sequences of every owner who has run out and uses none, sorted. Their Leave is to follow.
  std::vector<SequenceId> Expired(Nanos now);
  // When Expired could next find something. Not before it does, and exact.
  Nanos NextExpiry();

  size_t num_owners() const { return owners_.size(); }
  // OK, or INTERNAL if owners do not fit the order in which they are looked at.
  absl::Status CheckOrder() const;

 private:
  struct LooksEarlier {
    bool operator()(const Owner* a, const Owner* b) const {
      return a->look_at != b->look_at ? a->look_at < b->look_at : a->serial < b->serial;
    }
  };

  void LookAt(Owner* owner, Nanos when);
  void LookNoMore(Owner* owner);
  // The first owner by its true expiry, or null.
  Owner* First();

  absl::flat_hash_map<std::string, std::unique_ptr<Owner>> owners_;
  // Owners with look_at != kNever. An owner whose expiry has moved stands at its old place until
  // that comes first: a touch costs no more than a store.
  absl::btree_set<Owner*, LooksEarlier> looks_;
  uint64_t last_serial_ = 0;
};

}  // namespace attn::kvcache
