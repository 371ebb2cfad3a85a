// Results of lifecycle calls by request key, so that a repeat gets the first result. Of the request
// itself only a fingerprint is kept: enough to tell a repeat from another request under its key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "attn/base/clock.h"
#include "server/core/call.h"

namespace attn::server {

// Keys of different kinds of calls are apart. Engine thread only.
class RequestMemory {
 public:
  struct Key {
    size_t kind = 0;  // index of the alternative in Request
    uint64_t request_key = 0;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.kind, key.request_key);
    }
  };

  struct Entry {
    uint64_t fingerprint = 0;  // FingerprintOf the call
    Result result;
  };

  // A lease was granted: results are kept at least for the longest.
  void NoteLease(Nanos lease) { kept_for_ = std::max(kept_for_, lease); }
  // Null if the key is new or forgotten.
  const Entry* Find(const Key& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  // REQUIRES: Find(key) is null.
  void Remember(const Key& key, Entry entry, Nanos now) {
    entries_.emplace(key, std::move(entry));
    by_age_.emplace_back(now + kept_for_, key);
  }
  void Forget(Nanos now) {
    for (; !by_age_.empty() && by_age_.front().first <= now; by_age_.pop_front()) {
      entries_.erase(by_age_.front().second);
    }
  }
  size_t size() const { return entries_.size(); }

 private:
  Nanos kept_for_ = 30 * kSecond;
  absl::flat_hash_map<Key, Entry> entries_;
  // Until when each is kept; increasing, since kept_for_ only grows.
  std::deque<std::pair<Nanos, Key>> by_age_;
};

}  // namespace attn::server
