// The parts of a KvCache put together: models, ids, and questions about sequences.
#include "attn/kvcache/kv_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "kvcache/src/cache_state.h"

namespace attn::kvcache {
namespace {

constexpr size_t kMaxSlot = 65535;

void AddTo(PoolStats* sum, const PoolStats& pool) {
  sum->free += pool.free;
  sum->reserved += pool.reserved;
  sum->live += pool.live;
  sum->unbacked += pool.unbacked;
}

PoolStats StatsOfPool(const PagePool& pool) {
  return {.free = pool.num_in(PageState::kFree),
          .reserved = pool.num_in(PageState::kReserved),
          .live = pool.num_in(PageState::kLive),
          .unbacked = pool.num_in(PageState::kUnbacked)};
}

}  // namespace

Sequence& KvCache::State::Get(SequenceId id) const {
  Sequence* const sequence = Find(id);
  ATTN_CHECK(sequence != nullptr, "sequence ", id.value, " is not open");
  return *sequence;
}

absl::Status KvCache::State::WhyNotOpen(SequenceId id, absl::string_view field) const {
  if (WasGivenOut(id)) {
    return MakeError(Reason::kStaleSequence, field,
                     absl::StrCat("got ", id.value, ", which was closed or has expired"));
  }
  return MakeError(Reason::kUnknownSequence, field,
                   absl::StrCat("got ", id.value, ", which was never given out"));
}

KvCache::KvCache(const KvCacheOptions& options) : state_(std::make_unique<State>(options)) {}
KvCache::~KvCache() = default;

// ---- models

absl::StatusOr<ModelSlot> KvCache::AddModel(const CacheModel& model) {
  size_t slot = 1;
  while (slot < state_->slots.size() && state_->slots[slot].model != nullptr) ++slot;
  if (slot > kMaxSlot) {
    return MakeError(Reason::kQuota, "",
                     absl::StrCat("got a model too many, want at most ", kMaxSlot));
  }
  const ModelSlot free_slot(static_cast<uint16_t>(slot));
  ATTN_RETURN_IF_ERROR(AddModelAt(free_slot, model));
  return free_slot;
}

absl::Status KvCache::AddModelAt(ModelSlot slot, const CacheModel& model) {
  if (slot.value == 0) return MakeError(Reason::kInvalid, "slot", "got 0, want at least 1");
  if (state_->FindModel(slot) != nullptr) {
    return MakeError(Reason::kModelExists, "slot",
                     absl::StrCat("got ", slot.value, ", which is taken"));
  }
  ATTN_RETURN_IF_ERROR(CheckModel(model, state_->budget));
  if (state_->slots.size() <= slot.value) state_->slots.resize(size_t{slot.value} + 1);
  state_->slots[slot.value].model = std::make_unique<ModelPools>(slot, model, &state_->budget);
  return absl::OkStatus();
}

absl::Status KvCache::RemoveModel(ModelSlot slot) {
  const ModelPools* const model = state_->FindModel(slot);
  if (model == nullptr) {
    return MakeError(Reason::kUnknownModel, "slot",
                     absl::StrCat("got ", slot.value, ", which is free"));
  }
  if (model->num_sequences > 0) {
    return MakeError(Reason::kModelInUse, "slot",
                     absl::StrCat("got ", slot.value, ", of which ", model->num_sequences,
                                  " sequences are open, want none"));
  }
  state_->slots[slot.value].model = nullptr;
  return absl::OkStatus();
}

PoolGeometry KvCache::GeometryOf(const CacheModel& model, uint32_t group) const {
  return state_->budget.GeometryFor(model.groups[group].page_bytes);
}

// ---- ids and questions

SequenceId KvCache::NextId(ModelSlot model) {
  ATTN_CHECK(state_->FindModel(model) != nullptr, "no model in slot ", model.value);
  const uint64_t counter = ++state_->slots[model.value].last_counter;
  ATTN_CHECK(counter >> kSequenceCounterBits == 0, "ids of slot ", model.value, " are used up");
  return MakeSequenceId(model, counter);
}

absl::Status KvCache::CheckOpen(SequenceId id, absl::string_view field) const {
  return state_->Find(id) != nullptr ? absl::OkStatus() : state_->WhyNotOpen(id, field);
}

uint32_t KvCache::LengthOf(SequenceId id, uint32_t layer) const {
  return state_->Get(id).layer(layer).len;
}

uint32_t KvCache::CommittedLengthOf(SequenceId id) const { return state_->Get(id).CommittedLen(); }

const std::string& KvCache::OwnerOf(SequenceId id) const { return state_->Get(id).owner()->name; }

PageTable KvCache::TableOf(SequenceId id, uint32_t group) const {
  return state_->Get(id).group(group).pages.Table();
}

absl::StatusOr<SequenceDescription> KvCache::Describe(SequenceId id, Nanos now) const {
  const Sequence* const sequence = state_->Find(id);
  if (sequence == nullptr) return state_->WhyNotOpen(id, "sequence_id");
  const ModelPools& model = sequence->model();
  SequenceDescription description;
  description.sequence = id;
  description.model = SlotOf(id);
  description.owner = sequence->owner()->name;
  description.committed_len = sequence->CommittedLen();
  description.lease_remaining = sequence->owner()->Remaining(now);
  for (uint32_t l = 0; l < model.num_layers(); ++l) {
    description.layer_lens.push_back(sequence->layer(l).len);
  }
  for (uint32_t g = 0; g < model.num_groups(); ++g) {
    const PageList& pages = sequence->group(g).pages;
    description.num_pages += static_cast<uint64_t>(pages.num_pages());
    for (int32_t i = 0; i < pages.num_pages(); ++i) {
      description.num_shared_pages += pages.IsShared(i, model.pool(g));
    }
  }
  return description;
}

// ---- accounting

PoolStats KvCache::StatsOf(ModelSlot model, uint32_t group) const {
  const ModelPools* const pools = state_->FindModel(model);
  ATTN_CHECK(pools != nullptr && group < pools->num_groups(), "slot ", model.value, " group ",
             group);
  return StatsOfPool(pools->pool(group));
}

CacheStats KvCache::Stats() const {
  CacheStats stats;
  stats.num_sequences = static_cast<int64_t>(state_->sequences.size());
  stats.budget_bytes = state_->budget.budget_bytes();
  stats.backed_bytes = state_->budget.backed_bytes();
  for (const State::Slot& slot : state_->slots) {
    if (slot.model == nullptr) continue;
    for (uint32_t g = 0; g < slot.model->num_groups(); ++g) {
      const PagePool& pool = slot.model->pool(g);
      AddTo(&stats.pages, StatsOfPool(pool));
      stats.live_bytes += pool.num_in(PageState::kLive) * pool.identity().page_bytes;
    }
  }
  return stats;
}

}  // namespace attn::kvcache
