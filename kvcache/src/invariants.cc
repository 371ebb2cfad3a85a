// Recomputes what the cache believes about itself, from the sequences up: chunks, reference counts,
// page states, slabs, leases.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/cache_state.h"

namespace attn::kvcache {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return MakeError(Reason::kInternal, "", absl::StrCat(parts...));
}

// What the page lists say of the pages of one pool.
class PoolAudit {
 public:
  explicit PoolAudit(const PagePool& pool) : pool_(pool), pages_(pool.num_pages()) {}

  absl::Status AddList(const PageList& list, int32_t num_live) {
    const PageTable table = list.Table();
    const int32_t num_chunks = (list.num_pages() + kPagesPerChunk - 1) / kPagesPerChunk;
    if (list.chunks().size() != static_cast<size_t>(num_chunks)) {
      return Broken("a list of ", list.num_pages(), " pages has ", list.chunks().size(), " chunks");
    }
    for (int32_t c = 0; c < num_chunks; ++c) {
      if (table.chunks[c] != list.chunks()[c]->ids) return Broken("a table misses chunk ", c);
      const int32_t held = std::min(kPagesPerChunk, list.num_pages() - c * kPagesPerChunk);
      ATTN_RETURN_IF_ERROR(AddChunk(list.chunks()[c], held));
    }
    for (int32_t i = 0; i < list.num_pages(); ++i) {
      Page& page = pages_[table[i]];
      (i < num_live ? page.is_live : page.is_reserved) = true;
    }
    return absl::OkStatus();
  }

  absl::Status Check() const {
    ATTN_RETURN_IF_ERROR(pool_.CheckFreeLists());
    for (const auto& [chunk, seen] : chunks_) {
      if (chunk->num_owners != seen.num_owners) {
        return Broken("a chunk has ", seen.num_owners, " owners and counts ", chunk->num_owners);
      }
    }
    for (int32_t slab = 0; slab < pool_.num_slabs(); ++slab) {
      const PageId first = slab * pool_.pages_per_slab();
      for (PageId page = first; page < first + pool_.pages_per_slab(); ++page) {
        ATTN_RETURN_IF_ERROR(CheckPage(page, pool_.IsBacked(slab)));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Page {
    uint32_t num_references = 0;
    bool is_live = false;
    bool is_reserved = false;
  };
  struct Chunk {
    uint32_t num_owners = 0;
    int32_t num_pages = 0;
  };

  absl::Status AddChunk(const PageChunk* chunk, int32_t num_pages) {
    Chunk& seen = chunks_[chunk];
    if (seen.num_owners++ > 0) {
      if (seen.num_pages == num_pages) return absl::OkStatus();
      return Broken("owners of a chunk use ", seen.num_pages, " and ", num_pages, " pages of it");
    }
    seen.num_pages = num_pages;
    for (int32_t i = 0; i < num_pages; ++i) {
      const PageId page = chunk->ids[i];
      if (page < 0 || page >= pool_.num_pages()) return Broken("a chunk holds page ", page);
      ++pages_[page].num_references;
    }
    return absl::OkStatus();
  }

  absl::Status CheckPage(PageId id, bool is_backed) const {
    const Page& page = pages_[id];
    if (!is_backed) {
      return page.num_references == 0 ? absl::OkStatus() : Broken("page ", id, " has no memory");
    }
    const PageState want = page.is_live       ? PageState::kLive
                           : page.is_reserved ? PageState::kReserved
                                              : PageState::kFree;
    if (pool_.StateOf(id) != want) {
      return Broken("page ", id, " is in state ", static_cast<int>(pool_.StateOf(id)), ", want ",
                    static_cast<int>(want));
    }
    if (want == PageState::kFree) return absl::OkStatus();
    if (pool_.NumReferences(id) != page.num_references) {
      return Broken("page ", id, " counts ", pool_.NumReferences(id), " references, want ",
                    page.num_references);
    }
    if (page.is_reserved && page.num_references != 1) {
      return Broken("reserved page ", id, " has ", page.num_references, " references");
    }
    return absl::OkStatus();
  }

  const PagePool& pool_;
  std::vector<Page> pages_;
  absl::flat_hash_map<const PageChunk*, Chunk> chunks_;
};

absl::Status CheckLayers(const Sequence& sequence, uint32_t remembered_appends) {
  for (uint32_t l = 0; l < sequence.model().num_layers(); ++l) {
    const LayerState& layer = sequence.layer(l);
    if (layer.reserved_end != 0 && layer.reserved_end <= layer.len) {
      return Broken("layer ", l, " ends at ", layer.len, " and is reserved to ",
                    layer.reserved_end);
    }
    if (layer.appends.size() > remembered_appends) {
      return Broken("layer ", l, " remembers ", layer.appends.size(), " appends");
    }
    uint64_t limit = layer.len;
    for (uint32_t age = 0; age < layer.appends.size(); ++age) {
      const RememberedAppend& append = layer.appends.Newest(age);
      if (append.end() > limit) return Broken("layer ", l, " remembers an append it has lost");
      limit = append.begin;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const Sequence& sequence, uint32_t group, PoolAudit* audit) {
  const GroupState& state = sequence.group(group);
  if (state.num_live != sequence.NumPagesForLens(group) ||
      state.pages.num_pages() != sequence.NumPagesNeeded(group)) {
    return Broken("group ", group, " has ", state.pages.num_pages(), " pages, ", state.num_live,
                  " of them live, want ", sequence.NumPagesNeeded(group), " and ",
                  sequence.NumPagesForLens(group));
  }
  return audit->AddList(state.pages, state.num_live);
}

absl::Status In(SequenceId id, const absl::Status& status) {
  return status.ok() ? status : Broken("sequence ", id.value, ": ", status.message());
}

}  // namespace

absl::Status KvCache::CheckInvariants() const {
  absl::flat_hash_map<const PagePool*, PoolAudit> audits;
  int64_t backed_bytes = 0, num_sequences = 0;
  for (const State::Slot& slot : state_->slots) {
    if (slot.model == nullptr) continue;
    num_sequences += slot.model->num_sequences;
    for (uint32_t g = 0; g < slot.model->num_groups(); ++g) {
      const PagePool& pool = slot.model->pool(g);
      audits.emplace(&pool, PoolAudit(pool));
      backed_bytes += pool.num_backed_slabs() * pool.slab_bytes();
    }
  }
  if (backed_bytes != state_->budget.backed_bytes() ||
      backed_bytes > state_->budget.budget_bytes()) {
    return Broken(backed_bytes, " bytes are backed, counted are ", state_->budget.backed_bytes(),
                  ", the budget is ", state_->budget.budget_bytes());
  }
  if (num_sequences != static_cast<int64_t>(state_->sequences.size())) {
    return Broken("models count ", num_sequences, " sequences, want ", state_->sequences.size());
  }
  absl::flat_hash_map<const Owner*, std::pair<size_t, uint64_t>> owners;  // sequences, uses
  for (const auto& [id, sequence] : state_->sequences) {
    auto& [num_owned, num_uses] = owners[sequence->owner()];
    ++num_owned;
    num_uses += sequence->num_uses;
    if (!sequence->owner()->sequences.contains(id)) {
      return Broken("sequence ", id.value, " is unknown to its owner");
    }
    ATTN_RETURN_IF_ERROR(In(id, CheckLayers(*sequence, state_->options.remembered_appends)));
    for (uint32_t g = 0; g < sequence->model().num_groups(); ++g) {
      PoolAudit& audit = audits.at(&sequence->model().pool(g));
      ATTN_RETURN_IF_ERROR(In(id, CheckGroup(*sequence, g, &audit)));
    }
  }
  for (const auto& [pool, audit] : audits) {
    const absl::Status checked = audit.Check();
    if (!checked.ok()) {
      return Broken("model slot ", pool->identity().model.value, " group ", pool->identity().group,
                    ": ", checked.message());
    }
  }
  for (const auto& [owner, counted] : owners) {
    if (counted != std::pair(owner->sequences.size(), owner->num_uses)) {
      return Broken("owner ", owner->name, " has ", counted.first, " sequences and ",
                    counted.second, " uses, counts ", owner->sequences.size(), " and ",
                    owner->num_uses);
    }
  }
  if (owners.size() != state_->leases.num_owners()) {
    return Broken(state_->leases.num_owners(), " owners, want ", owners.size());
  }
  return state_->leases.CheckOrder();
}

}  // namespace attn::kvcache
