// The slow half of PagePool: slabs coming and going, and the check of its own lists.
#include "kvcache/src/page_pool.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::kvcache {
namespace {

absl::Status Broken(const PagePool& pool, absl::string_view what) {
  return MakeError(Reason::kInternal, "",
                   absl::StrCat("model slot ", pool.identity().model.value, " group ",
                                pool.identity().group, ": ", what));
}

}  // namespace

PagePool::PagePool(const Identity& identity, const PoolGeometry& geometry)
    : identity_(identity),
      geometry_(geometry),
      pages_per_slab_log2_(std::countr_zero(static_cast<uint32_t>(geometry.pages_per_slab))),
      slabs_(geometry.num_pages / geometry.pages_per_slab) {
  ATTN_CHECK(std::has_single_bit(static_cast<uint32_t>(geometry.pages_per_slab)) &&
                 geometry.num_pages % geometry.pages_per_slab == 0,
             geometry.num_pages, " pages in slabs of ", geometry.pages_per_slab);
  for (int32_t slab = num_slabs() - 1; slab >= 0; --slab) unbacked_slabs_.push_back(slab);
  Count(PageState::kUnbacked, num_pages());
}

void PagePool::LinkFirst(int32_t slab) {
  slabs_[slab].previous = kNone;
  slabs_[slab].next = first_slab_;
  (first_slab_ == kNone ? last_slab_ : slabs_[first_slab_].previous) = slab;
  first_slab_ = slab;
}

void PagePool::LinkLast(int32_t slab) {
  slabs_[slab].next = kNone;
  slabs_[slab].previous = last_slab_;
  (last_slab_ == kNone ? first_slab_ : slabs_[last_slab_].next) = slab;
  last_slab_ = slab;
}

void PagePool::Unlink(int32_t slab) {
  const Slab& s = slabs_[slab];
  (s.previous == kNone ? first_slab_ : slabs_[s.previous].next) = s.next;
  (s.next == kNone ? last_slab_ : slabs_[s.next].previous) = s.previous;
}

void PagePool::BackSlab() {
  ATTN_CHECK(!unbacked_slabs_.empty(), "no slab is left");
  const int32_t slab = unbacked_slabs_.back();
  unbacked_slabs_.pop_back();
  const size_t first = static_cast<size_t>(slab) << pages_per_slab_log2_;
  words_.resize(std::max(words_.size(), first + static_cast<size_t>(pages_per_slab())),
                Word(PageState::kUnbacked, 0));
  for (int32_t i = 0; i < pages_per_slab(); ++i) {
    words_[first + i] = FreeWord(i + 1 < pages_per_slab() ? i + 1 : kNone);
  }
  slabs_[slab].num_free = pages_per_slab();
  slabs_[slab].first_free = 0;
  LinkLast(slab);
  ++num_free_slabs_;
  Count(PageState::kUnbacked, -pages_per_slab());
  Count(PageState::kFree, pages_per_slab());
}

int32_t PagePool::UnbackFreeSlab() {
  ATTN_CHECK(num_free_slabs_ > 0, "no slab is free");
  const int32_t slab = last_slab_;
  Unlink(slab);
  slabs_[slab] = Slab{};
  --num_free_slabs_;
  const auto first = words_.begin() + (static_cast<int64_t>(slab) << pages_per_slab_log2_);
  std::fill(first, first + pages_per_slab(), Word(PageState::kUnbacked, 0));
  Count(PageState::kFree, -pages_per_slab());
  Count(PageState::kUnbacked, pages_per_slab());
  unbacked_slabs_.push_back(slab);
  return slab;
}

bool PagePool::IsBacked(int32_t slab) const {
  const size_t first = static_cast<size_t>(slab) << pages_per_slab_log2_;
  return first < words_.size() && StateIn(words_[first]) != PageState::kUnbacked;
}

absl::Status PagePool::CheckSlab(int32_t slab, std::array<int64_t, kNumPageStates>* counted) const {
  std::array<int64_t, kNumPageStates> here{};
  const PageId first = slab << pages_per_slab_log2_;
  for (PageId page = first; page < first + pages_per_slab(); ++page) {
    const PageState state =
        static_cast<size_t>(page) < words_.size() ? StateOf(page) : PageState::kUnbacked;
    ++here[static_cast<size_t>(state)];
  }
  for (int i = 0; i < kNumPageStates; ++i) (*counted)[i] += here[i];
  const int64_t num_unbacked = here[static_cast<size_t>(PageState::kUnbacked)];
  if (num_unbacked != (IsBacked(slab) ? 0 : pages_per_slab())) {
    return Broken(*this, absl::StrCat("slab ", slab, " has ", num_unbacked, " unbacked pages"));
  }
  const int64_t num_free = here[static_cast<size_t>(PageState::kFree)];
  int64_t num_linked = 0;
  for (int32_t i = slabs_[slab].first_free; i != kNone && num_linked <= num_free;
       i = NextFree(words_[first + i])) {
    if (StateOf(first + i) != PageState::kFree) {
      return Broken(*this, absl::StrCat("page ", first + i, " is in a free list and in use"));
    }
    ++num_linked;
  }
  if (num_linked != num_free || slabs_[slab].num_free != num_free) {
    return Broken(*this, absl::StrCat("slab ", slab, " has ", num_free, " free pages, lists ",
                                      num_linked, " and counts ", slabs_[slab].num_free));
  }
  return absl::OkStatus();
}

absl::Status PagePool::CheckFreeLists() const {
  std::array<int64_t, kNumPageStates> counted{};
  int32_t num_free_slabs = 0, num_listed = 0;
  for (int32_t slab = 0; slab < num_slabs(); ++slab) {
    ATTN_RETURN_IF_ERROR(CheckSlab(slab, &counted));
    num_free_slabs += slabs_[slab].num_free == pages_per_slab();
    num_listed += slabs_[slab].num_free > 0;
  }
  if (counted != num_in_) {
    return Broken(
        *this, absl::StrCat("counted ", counted[0], " unbacked, ", counted[1], " free, ",
                            counted[2], " reserved, ", counted[3], " live pages, want ", num_in_[0],
                            ", ", num_in_[1], ", ", num_in_[2], ", ", num_in_[3]));
  }
  if (num_free_slabs != num_free_slabs_) {
    return Broken(*this, absl::StrCat(num_free_slabs, " free slabs, want ", num_free_slabs_));
  }
  bool wholly_free_seen = false;
  for (int32_t slab = first_slab_; slab != kNone; slab = slabs_[slab].next) {
    const bool wholly_free = slabs_[slab].num_free == pages_per_slab();
    if (slabs_[slab].num_free == 0 || (wholly_free_seen && !wholly_free) || num_listed == 0) {
      return Broken(*this, absl::StrCat("slab ", slab, " stands wrong in the list"));
    }
    wholly_free_seen = wholly_free;
    --num_listed;
  }
  if (num_listed != 0) return Broken(*this, absl::StrCat(num_listed, " slabs are not listed"));
  return absl::OkStatus();
}

}  // namespace attn::kvcache
