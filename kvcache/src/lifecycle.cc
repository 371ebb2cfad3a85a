// Sequences begin, are copied, cut and closed.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/cache_state.h"

namespace attn::kvcache {

absl::Status KvCache::State::CheckCanOpen(SequenceId id, ModelSlot model,
                                          absl::string_view field) const {
  if (SlotOf(id) != model || !WasGivenOut(id) || Find(id) != nullptr) {
    return MakeError(
        Reason::kInvalid, field,
        absl::StrCat("got ", id.value, ", want an unused id of model slot ", model.value));
  }
  return absl::OkStatus();
}

absl::Status KvCache::State::CheckSettled(const Sequence& sequence, absl::string_view field) const {
  if (!sequence.HasOpenReservation()) return absl::OkStatus();
  return MakeError(
      Reason::kInvalid, field,
      absl::StrCat("got ", sequence.id().value, ", which has an append in flight, want none"));
}

absl::Status KvCache::State::CheckRoomFor(uint64_t num_sequences) const {
  if (sequences.size() + num_sequences <= options.max_sequences) return absl::OkStatus();
  return MakeError(
      Reason::kQuota, "",
      absl::StrCat("got ", num_sequences, " sequences more than the ", sequences.size(),
                   " open ones, want at most ", options.max_sequences, " in all"));
}

Sequence& KvCache::State::Insert(SequenceId id, Owner* owner) {
  auto sequence = std::make_unique<Sequence>(id, FindModel(SlotOf(id)), owner);
  Sequence& inserted = *sequence;
  sequences.emplace(id, std::move(sequence));
  return inserted;
}

void KvCache::State::Close(Sequence& sequence) {
  leases.Leave(sequence.owner(), sequence.id(), sequence.num_uses);
  last_found = nullptr;
  sequences.erase(sequences.find(sequence.id()));
}

absl::StatusOr<SequenceId> KvCache::Open(const OpenOptions& options, Nanos now) {
  if (state_->FindModel(options.model) == nullptr) {
    return MakeError(Reason::kUnknownModel, "model",
                     absl::StrCat("got slot ", options.model.value, ", which is free"));
  }
  const SequenceId id = NextId(options.model);
  ATTN_RETURN_IF_ERROR(OpenAt(id, options, now));
  return id;
}

absl::Status KvCache::OpenAt(SequenceId id, const OpenOptions& options, Nanos now) {
  if (state_->FindModel(options.model) == nullptr) {
    return MakeError(Reason::kUnknownModel, "model",
                     absl::StrCat("got slot ", options.model.value, ", which is free"));
  }
  ATTN_RETURN_IF_ERROR(state_->CheckCanOpen(id, options.model, "sequence_id"));
  if (options.lease <= 0) {
    return MakeError(Reason::kInvalid, "lease",
                     absl::StrCat("got ", options.lease, " ns, want more than 0"));
  }
  ATTN_RETURN_IF_ERROR(state_->CheckRoomFor(1));
  state_->Insert(id, state_->leases.Join(options.owner, id, options.lease, now));
  return absl::OkStatus();
}

absl::Status KvCache::Fork(SequenceId parent, uint32_t at_len,
                           std::span<const SequenceId> children) {
  const Sequence* const source = state_->Find(parent);
  if (source == nullptr) return state_->WhyNotOpen(parent, "parent_id");
  const uint32_t committed_len = source->CommittedLen();
  if (at_len > committed_len) {
    return MakeError(
        Reason::kInvalid, "at_len",
        absl::StrCat("got ", at_len, ", want at most the committed length ", committed_len));
  }
  ATTN_RETURN_IF_ERROR(state_->CheckSettled(*source, "parent_id"));
  ATTN_RETURN_IF_ERROR(state_->CheckRoomFor(children.size()));
  absl::flat_hash_set<SequenceId> seen;
  for (const SequenceId child : children) {
    ATTN_RETURN_IF_ERROR(state_->CheckCanOpen(child, SlotOf(parent), "children"));
    if (!seen.insert(child).second) {
      return MakeError(Reason::kInvalid, "children",
                       absl::StrCat("got ", child.value, " twice, want distinct ids"));
    }
  }
  for (const SequenceId child : children) {
    state_->leases.Join(source->owner(), child);
    state_->Insert(child, source->owner()).CopyPrefix(*source, at_len);
  }
  return absl::OkStatus();
}

absl::Status KvCache::Reorder(std::span<const SequenceId> targets,
                              std::span<const SequenceId> sources) {
  if (targets.size() != sources.size()) {
    return MakeError(
        Reason::kInvalid, "sources",
        absl::StrCat("got ", sources.size(), ", want as many as targets, ", targets.size()));
  }
  absl::flat_hash_set<SequenceId> seen;
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string target_field = absl::StrCat("targets[", i, "]");
    const std::string source_field = absl::StrCat("sources[", i, "]");
    ATTN_RETURN_IF_ERROR(CheckOpen(targets[i], target_field));
    ATTN_RETURN_IF_ERROR(CheckOpen(sources[i], source_field));
    if (!seen.insert(targets[i]).second) {
      return MakeError(Reason::kInvalid, target_field,
                       absl::StrCat("got ", targets[i].value, " again, want distinct targets"));
    }
    if (SlotOf(targets[i]) != SlotOf(sources[i])) {
      return MakeError(Reason::kInvalid, source_field,
                       absl::StrCat("got a sequence of model slot ", SlotOf(sources[i]).value,
                                    ", want the target's, ", SlotOf(targets[i]).value));
    }
    ATTN_RETURN_IF_ERROR(state_->CheckSettled(state_->Get(targets[i]), target_field));
    ATTN_RETURN_IF_ERROR(state_->CheckSettled(state_->Get(sources[i]), source_field));
  }
  // All copies first: a source may be a target too.
  std::vector<std::unique_ptr<Sequence>> copies;
  copies.reserve(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const Sequence& source = state_->Get(sources[i]);
    copies.push_back(std::make_unique<Sequence>(targets[i], &source.model(), nullptr));
    copies.back()->CopyWhole(source);
  }
  for (size_t i = 0; i < targets.size(); ++i) state_->Get(targets[i]).SwapContent(*copies[i]);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> KvCache::Truncate(SequenceId id, uint32_t len) {
  Sequence* const sequence = state_->Find(id);
  if (sequence == nullptr) return state_->WhyNotOpen(id, "sequence_id");
  const uint32_t longest_len = sequence->LongestLen();
  if (len > longest_len) {
    return MakeError(
        Reason::kInvalid, "len",
        absl::StrCat("got ", len, ", want at most the longest layer's length ", longest_len));
  }
  ATTN_RETURN_IF_ERROR(state_->CheckSettled(*sequence, "sequence_id"));
  const ModelPools& model = sequence->model();
  for (uint32_t l = 0; l < model.num_layers(); ++l) sequence->CutLayer(l, len);
  for (uint32_t g = 0; g < model.num_groups(); ++g) sequence->Settle(g);
  return sequence->CommittedLen();
}

absl::Status KvCache::Close(SequenceId id) {
  if (Sequence* const sequence = state_->Find(id)) {
    state_->Close(*sequence);
    return absl::OkStatus();
  }
  if (state_->WasGivenOut(id)) return absl::OkStatus();
  return state_->WhyNotOpen(id, "sequence_id");
}

}  // namespace attn::kvcache
