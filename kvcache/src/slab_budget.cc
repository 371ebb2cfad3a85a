#include "kvcache/src/slab_budget.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::kvcache {
namespace {

// Pages come back when somebody closes, cuts or lets a lease run out; no sooner than a few steps.
constexpr uint32_t kRetryAfterMs = 100;

}  // namespace
namespace {

// Slabs of 2 to 32 MiB: huge pages of the processor below, little idle memory in a pool above. A
// budget has at least 32 of them, so that a small one can still be shared by a few pools.
constexpr int64_t kMinSlabBytes = int64_t{2} << 20;
constexpr int64_t kMaxSlabBytes = int64_t{32} << 20;
constexpr int64_t kSlabsInBigBudget = 128;
constexpr int64_t kSlabsInSmallBudget = 32;

constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max();
// Keeps a link within a slab inside a page's word.
constexpr int64_t kMaxPagesPerSlab = int64_t{1} << 26;

}  // namespace

SlabBudget::SlabBudget(int64_t budget_bytes, SlabBacking* backing)
    : budget_bytes_(budget_bytes), backing_(backing) {}

PoolGeometry SlabBudget::GeometryFor(int64_t page_bytes) const {
  if (page_bytes <= 0 || page_bytes > budget_bytes_) return {};
  const int64_t target_bytes =
      std::min(std::clamp(budget_bytes_ / kSlabsInBigBudget, kMinSlabBytes, kMaxSlabBytes),
               budget_bytes_ / kSlabsInSmallBudget);
  const int64_t wanted = std::clamp(target_bytes / page_bytes, int64_t{1}, kMaxPagesPerSlab);
  const int64_t pages_per_slab =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(wanted)));
  const int64_t num_slabs =
      std::min(budget_bytes_ / (pages_per_slab * page_bytes), kMaxPages / pages_per_slab);
  return {.num_pages = static_cast<int32_t>(num_slabs * pages_per_slab),
          .pages_per_slab = static_cast<int32_t>(pages_per_slab)};
}

void SlabBudget::Add(PagePool* pool) { pools_.push_back(pool); }

void SlabBudget::Remove(PagePool* pool) {
  ATTN_CHECK(pool->num_free_slabs() == pool->num_backed_slabs(), "pages are in use");
  while (pool->num_free_slabs() > 0) TakeFreeSlabFrom(*pool);
  pools_.erase(std::find(pools_.begin(), pools_.end(), pool));
}

int64_t SlabBudget::FreeSlabBytesOutside(const PagePool& pool) const {
  int64_t bytes = 0;
  for (const PagePool* other : pools_) {
    if (other != &pool) bytes += other->num_free_slabs() * other->slab_bytes();
  }
  return bytes;
}

void SlabBudget::TakeFreeSlabFrom(PagePool& pool) {
  const int32_t slab = pool.UnbackFreeSlab();
  backed_bytes_ -= pool.slab_bytes();
  if (backing_ != nullptr) {
    backing_->ReleaseSlab(pool.identity().model, pool.identity().group, slab);
  }
}

absl::Status SlabBudget::BackOneSlab(PagePool& pool) {
  while (budget_bytes_ - backed_bytes_ < pool.slab_bytes()) {
    PagePool* richest = nullptr;
    for (PagePool* other : pools_) {
      if (other == &pool || other->num_free_slabs() == 0) continue;
      if (richest == nullptr || other->num_free_slabs() * other->slab_bytes() >
                                    richest->num_free_slabs() * richest->slab_bytes()) {
        richest = other;
      }
    }
    ATTN_CHECK(richest != nullptr, "slabs were counted that are not there");
    TakeFreeSlabFrom(*richest);
  }
  if (backing_ != nullptr) {
    const absl::Status committed =
        backing_->CommitSlab(pool.identity().model, pool.identity().group, pool.NextUnbackedSlab());
    if (!committed.ok()) {
      return MakeError(Reason::kNoPages, "",
                       absl::StrCat("no memory for another slab of ", pool.slab_bytes(),
                                    " bytes: ", committed.message()),
                       kRetryAfterMs);
    }
  }
  pool.BackSlab();
  backed_bytes_ += pool.slab_bytes();
  return absl::OkStatus();
}

absl::Status SlabBudget::Provide(PagePool& pool, int64_t num_pages) {
  const int64_t missing = num_pages - pool.num_free();
  if (missing <= 0) return absl::OkStatus();
  const int64_t num_slabs = (missing + pool.pages_per_slab() - 1) / pool.pages_per_slab();
  const int64_t obtainable_bytes = budget_bytes_ - backed_bytes_ + FreeSlabBytesOutside(pool);
  const int64_t obtainable_slabs =
      std::min<int64_t>(pool.num_unbacked_slabs(), obtainable_bytes / pool.slab_bytes());
  if (num_slabs > obtainable_slabs) {
    return MakeError(
        Reason::kNoPages, "",
        absl::StrCat("need ", num_pages, " pages of ", pool.identity().page_bytes, " bytes, have ",
                     pool.num_free() + obtainable_slabs * pool.pages_per_slab()),
        kRetryAfterMs);
  }
  for (int64_t i = 0; i < num_slabs; ++i) ATTN_RETURN_IF_ERROR(BackOneSlab(pool));
  return absl::OkStatus();
}

}  // namespace attn::kvcache
