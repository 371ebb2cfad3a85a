// The pages of one layer group: which are free, how many page-list chunks refer to the others, and
// which slabs have memory.
//
// A page is in exactly one state and its state and reference count (or, free, the link to the next
// free page of its slab) share one 32-bit word, so that an operation touches one word of the page
// and one of its slab. Free pages hang on their slab, partly used slabs stand before wholly free
// ones: pages come from as few slabs as possible, and a wholly free slab is found in no time.
//
// Knows nothing of the budget; SlabBudget says when slabs come and go.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attn/base/check.h"
#include "attn/base/ids.h"
#include "attn/kvcache/kv_cache.h"

namespace attn::kvcache {

enum class PageState : uint32_t {
  kUnbacked,  // its slab has no memory
  kFree,
  kReserved,  // in a page list, behind every committed length
  kLive,
};
inline constexpr int kNumPageStates = 4;

class PagePool {
 public:
  // What a pool is for; fixed.
  struct Identity {
    ModelSlot model;
    uint32_t group = 0;
    int64_t page_bytes = 0;
  };

  PagePool(const Identity& identity, const PoolGeometry& geometry);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const Identity& identity() const { return identity_; }
  int32_t num_pages() const { return geometry_.num_pages; }
  int32_t pages_per_slab() const { return geometry_.pages_per_slab; }
  int64_t slab_bytes() const { return identity_.page_bytes * geometry_.pages_per_slab; }

  int64_t num_in(PageState state) const { return num_in_[static_cast<size_t>(state)]; }
  int64_t num_free() const { return num_in(PageState::kFree); }
  PageState StateOf(PageId page) const { return StateIn(words_[page]); }
  // Chunks that hold the page. REQUIRES: reserved or live.
  uint32_t NumReferences(PageId page) const { return words_[page] & kCountMask; }

  // A page with one reference, reserved. REQUIRES: num_free() > 0.
  PageId Acquire() {
    const int32_t s = first_slab_;
    Slab& slab = slabs_[s];
    const PageId page = (s << pages_per_slab_log2_) | slab.first_free;
    if (slab.num_free == pages_per_slab()) --num_free_slabs_;
    slab.first_free = NextFree(words_[page]);
    if (--slab.num_free == 0) Unlink(s);
    words_[page] = Word(PageState::kReserved, 1);
    Count(PageState::kFree, -1);
    Count(PageState::kReserved, 1);
    return page;
  }

  // REQUIRES of the following: the page is reserved or live.
  void AddReference(PageId page) { ++words_[page]; }
  // The last reference frees the page.
  void Release(PageId page) {
    const uint32_t word = words_[page];
    if ((word & kCountMask) > 1) {
      words_[page] = word - 1;
      return;
    }
    Count(StateIn(word), -1);
    Count(PageState::kFree, 1);
    const int32_t s = page >> pages_per_slab_log2_;
    Slab& slab = slabs_[s];
    words_[page] = FreeWord(slab.first_free);
    slab.first_free = page & (pages_per_slab() - 1);
    if (slab.num_free++ == 0) LinkFirst(s);
    if (slab.num_free == pages_per_slab()) {
      ++num_free_slabs_;
      MoveLast(s);
    }
  }
  void SetState(PageId page, PageState state) {
    const uint32_t word = words_[page];
    Count(StateIn(word), -1);
    Count(state, 1);
    words_[page] = Word(state, word & kCountMask);
  }

  int32_t num_slabs() const { return static_cast<int32_t>(slabs_.size()); }
  int32_t num_unbacked_slabs() const { return static_cast<int32_t>(unbacked_slabs_.size()); }
  int32_t num_backed_slabs() const { return num_slabs() - num_unbacked_slabs(); }
  // Slabs all of whose pages are free.
  int32_t num_free_slabs() const { return num_free_slabs_; }
  // The slab that BackSlab would take. REQUIRES: num_unbacked_slabs() > 0.
  int32_t NextUnbackedSlab() const { return unbacked_slabs_.back(); }
  // Its pages become free.
  void BackSlab();
  // Takes the memory of a wholly free slab away and returns the slab. REQUIRES: num_free_slabs() >
  // 0.
  int32_t UnbackFreeSlab();
  bool IsBacked(int32_t slab) const;

  // States against counters, free lists against slabs. OK, or INTERNAL.
  absl::Status CheckFreeLists() const;

 private:
  static constexpr int kCountBits = 29;
  static constexpr uint32_t kCountMask = (1u << kCountBits) - 1;
  static constexpr int32_t kNone = -1;

  // A slab stands in the list of slabs while num_free > 0.
  struct Slab {
    int32_t num_free = 0;
    int32_t first_free = kNone;  // index within the slab
    int32_t previous = kNone;
    int32_t next = kNone;
  };

  static uint32_t Word(PageState state, uint32_t count) {
    return (static_cast<uint32_t>(state) << kCountBits) | count;
  }
  static PageState StateIn(uint32_t word) { return static_cast<PageState>(word >> kCountBits); }
  // Links are stored plus one, 0 ending the list.
  static uint32_t FreeWord(int32_t next) {
    return Word(PageState::kFree, static_cast<uint32_t>(next + 1));
  }
  static int32_t NextFree(uint32_t word) { return static_cast<int32_t>(word & kCountMask) - 1; }

  void Count(PageState state, int64_t by) { num_in_[static_cast<size_t>(state)] += by; }
  void LinkFirst(int32_t slab);
  void LinkLast(int32_t slab);
  void Unlink(int32_t slab);
  void MoveLast(int32_t slab) {
    if (last_slab_ == slab) return;
    Unlink(slab);
    LinkLast(slab);
  }
  absl::Status CheckSlab(int32_t slab, std::array<int64_t, kNumPageStates>* counted) const;

  const Identity identity_;
  const PoolGeometry geometry_;
  const int pages_per_slab_log2_;
  // [highest slab that ever had memory + 1][pages_per_slab]; later pages are unbacked.
  std::vector<uint32_t> words_;
  std::vector<Slab> slabs_;
  int32_t first_slab_ = kNone;
  int32_t last_slab_ = kNone;
  int32_t num_free_slabs_ = 0;
  std::vector<int32_t> unbacked_slabs_;  // a stack
  std::array<int64_t, kNumPageStates> num_in_{};
};

}  // namespace attn::kvcache
