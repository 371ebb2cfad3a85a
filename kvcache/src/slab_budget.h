// One byte budget over the pools of all models: a pool that needs pages gets slabs from what the
// budget has left, then from wholly free slabs of other pools.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/page_pool.h"

namespace attn::kvcache {

class SlabBudget {
 public:
  // `backing` may be null; otherwise it outlives the budget.
  SlabBudget(int64_t budget_bytes, SlabBacking* backing);

  // How a group with pages of page_bytes is cut into slabs. Empty unless 0 < page_bytes <= budget.
  PoolGeometry GeometryFor(int64_t page_bytes) const;

  // Pools take part from Add to Remove. Remove takes back all slabs; REQUIRES: no page in use.
  void Add(PagePool* pool);
  void Remove(PagePool* pool);

  // Makes num_free() of the pool at least num_pages, or fails with NO_PAGES. A failure takes no
  // slab from another pool, except when the backing refuses one.
  absl::Status Provide(PagePool& pool, int64_t num_pages);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t backed_bytes() const { return backed_bytes_; }

 private:
  int64_t FreeSlabBytesOutside(const PagePool& pool) const;
  void TakeFreeSlabFrom(PagePool& pool);
  absl::Status BackOneSlab(PagePool& pool);

  const int64_t budget_bytes_;
  SlabBacking* const backing_;
  int64_t backed_bytes_ = 0;
  std::vector<PagePool*> pools_;
};

}  // namespace attn::kvcache
