#include "kvcache/src/lease_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"

namespace attn::kvcache {
namespace {

Nanos Later(Nanos now, Nanos by) {
  return by > 0 && now > kNever - by ? kNever : now + std::max<Nanos>(by, 0);
}

}  // namespace

void LeaseTable::LookAt(Owner* owner, Nanos when) {
  LookNoMore(owner);
  owner->look_at = when;
  if (when != kNever) looks_.insert(owner);
}

void LeaseTable::LookNoMore(Owner* owner) {
  if (owner->look_at != kNever) looks_.erase(owner);
  owner->look_at = kNever;
}

Owner* LeaseTable::Join(const std::string& name, SequenceId sequence, Nanos lease, Nanos now) {
  std::unique_ptr<Owner>& owner = owners_[name];
  if (owner == nullptr) {
    owner = std::make_unique<Owner>();
    owner->name = name;
    owner->serial = ++last_serial_;
    owner->lease = lease;
    owner->expires = Later(now, lease);
    LookAt(owner.get(), owner->expires);
  }
  owner->lease = std::max(owner->lease, lease);
  Touch(owner.get(), now);
  Join(owner.get(), sequence);
  return owner.get();
}

void LeaseTable::Join(Owner* owner, SequenceId sequence) { owner->sequences.insert(sequence); }

void LeaseTable::Leave(Owner* owner, SequenceId sequence, uint64_t num_uses) {
  ATTN_CHECK(num_uses <= owner->num_uses, num_uses, " of ", owner->num_uses, " uses");
  owner->sequences.erase(sequence);
  if (owner->sequences.empty()) {
    LookNoMore(owner);
    owners_.erase(owners_.find(owner->name));
    return;
  }
  owner->num_uses -= num_uses;
  if (owner->num_uses == 0 && owner->look_at == kNever) LookAt(owner, owner->expires);
}

void LeaseTable::Touch(Owner* owner, Nanos now) {
  owner->expires = std::max(owner->expires, Later(now, owner->lease));
}

uint32_t LeaseTable::Renew(const std::string& name, Nanos lease, Nanos now) {
  const auto found = owners_.find(name);
  if (found == owners_.end()) return 0;
  Owner* const owner = found->second.get();
  if (lease > 0) owner->lease = lease;
  Touch(owner, now);
  return static_cast<uint32_t>(owner->sequences.size());
}

void LeaseTable::AddUse(Owner* owner) { ++owner->num_uses; }

void LeaseTable::DropUse(Owner* owner) {
  ATTN_CHECK(owner->num_uses > 0, "a use is dropped that was not added");
  if (--owner->num_uses == 0 && owner->look_at == kNever) LookAt(owner, owner->expires);
}

Owner* LeaseTable::First() {
  while (!looks_.empty()) {
    Owner* const owner = *looks_.begin();
    if (owner->num_uses > 0) {
      LookNoMore(owner);
    } else if (owner->expires != owner->look_at) {
      LookAt(owner, owner->expires);
    } else {
      return owner;
    }
  }
  return nullptr;
}

std::vector<SequenceId> LeaseTable::Expired(Nanos now) {
  std::vector<SequenceId> expired;
  for (Owner* owner = First(); owner != nullptr && owner->expires <= now; owner = First()) {
    expired.insert(expired.end(), owner->sequences.begin(), owner->sequences.end());
    LookNoMore(owner);
  }
  std::sort(expired.begin(), expired.end());
  return expired;
}

Nanos LeaseTable::NextExpiry() {
  const Owner* const owner = First();
  return owner == nullptr ? kNever : owner->expires;
}

absl::Status LeaseTable::CheckOrder() const {
  size_t num_looks = 0;
  for (const auto& [name, owner] : owners_) {
    const bool is_listed = looks_.find(owner.get()) != looks_.end();
    const bool may_rest = owner->num_uses > 0 || owner->expires == kNever;
    num_looks += is_listed;
    if (is_listed != (owner->look_at != kNever) || owner->sequences.empty() ||
        (!is_listed && !may_rest) || (is_listed && owner->look_at > owner->expires)) {
      return MakeError(Reason::kInternal, "",
                       absl::StrCat("owner ", name, " expires at ", owner->expires,
                                    " and is looked at at ", owner->look_at));
    }
  }
  if (num_looks != looks_.size()) {
    return MakeError(Reason::kInternal, "",
                     absl::StrCat(looks_.size() - num_looks, " owners are gone but listed"));
  }
  return absl::OkStatus();
}

}  // namespace attn::kvcache
