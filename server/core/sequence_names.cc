#include "server/core/sequence_names.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::server {

void AliasNotes::Define(AliasRange range, ModelSlot slot) {
  for (uint32_t i = 0; i < range.count; ++i) slots_[range.first + i] = slot;
}

const ModelSlot* AliasNotes::Find(uint32_t alias) const {
  const auto it = slots_.find(alias);
  return it == slots_.end() ? nullptr : &it->second;
}

std::string FieldAt::Path() const {
  return absl::StrCat(array, "[", index, "]", member.empty() ? "" : ".", member);
}

namespace {

absl::StatusOr<ModelSlot> ResolveAlias(uint32_t alias, const AliasNotes* aliases,
                                       const FieldAt& field) {
  if (alias == 0) {
    return MakeError(Reason::kInvalid, field.Path(),
                     "got 0, want a sequence id (at least 2^48) or an alias of the stream");
  }
  if (aliases == nullptr) {
    return MakeError(Reason::kInvalid, field.Path(),
                     absl::StrCat("got alias ", alias,
                                  ", want a sequence id (at least 2^48): aliases are valid in the "
                                  "stream that defined them only"));
  }
  const ModelSlot* slot = aliases->Find(alias);
  if (slot == nullptr) {
    return MakeError(Reason::kUnknownSequence, field.Path(),
                     absl::StrCat("got alias ", alias, ", which this stream has not defined"));
  }
  if (*slot == AliasNotes::kFailed) {
    return MakeError(Reason::kSkipped, field.Path(),
                     absl::StrCat("got alias ", alias, ", whose Open or Fork was refused"));
  }
  return *slot;
}

}  // namespace

absl::StatusOr<ModelPtr> ResolveModel(uint64_t value, const ModelRegistry& registry,
                                      const AliasNotes* aliases, const FieldAt& field) {
  const SequenceRef ref{value};
  ModelSlot slot = SlotOf(SequenceId(value));
  if (ref.is_alias()) {
    absl::StatusOr<ModelSlot> noted = ResolveAlias(static_cast<uint32_t>(value), aliases, field);
    if (!noted.ok()) return noted.status();
    slot = *noted;
  }
  ModelPtr model = registry.FindBySlot(slot);
  if (model == nullptr) {
    return MakeError(Reason::kUnknownSequence, field.Path(),
                     absl::StrCat("got ", value, ", which names no sequence of a declared model"));
  }
  return model;
}

absl::Status AliasClaims::Claim(AliasRange range, const AliasNotes* aliases, size_t max_aliases,
                                const FieldAt& field) {
  if (range.first == 0) return absl::OkStatus();
  if (aliases == nullptr) {
    return MakeError(Reason::kInvalid, field.Path(),
                     absl::StrCat("got ", range.first, ", want 0: aliases are for streams only"));
  }
  const uint64_t last = uint64_t{range.first} + range.count - 1;
  if (last > UINT32_MAX) {
    return MakeError(
        Reason::kInvalid, field.Path(),
        absl::StrCat("got aliases ", range.first, " to ", last, ", want at most ", UINT32_MAX));
  }
  if (aliases->size() + claimed_.size() + range.count > max_aliases) {
    return MakeError(
        Reason::kQuota, field.Path(),
        absl::StrCat("got ", range.count, " more aliases after ", aliases->size() + claimed_.size(),
                     ", want at most ", max_aliases, " in one stream"));
  }
  for (uint32_t i = 0; i < range.count; ++i) {
    if (claimed_.insert(range.first + i).second) continue;
    return MakeError(Reason::kInvalid, field.Path(),
                     absl::StrCat("got alias ", range.first + i, " twice in one request"));
  }
  return absl::OkStatus();
}

}  // namespace attn::server
