// A KvStore for tests in which everything not written on purpose is NaN: all slots of all pages
// and layers are poisoned when it is made, and pages are handed out in a shuffled order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/attention/backend.h"
#include "attn/attention/batch.h"
#include "tests/support/random.h"

namespace attn::test {

// Page ids of one sequence; owns what its PageList views. Moving it keeps views valid.
class PageIds {
 public:
  PageIds(std::vector<PageId> ids, int32_t chunk_log2);
  PageList view() const;

 private:
  int32_t chunk_log2_;
  int32_t num_pages_;
  std::vector<std::vector<PageId>> chunks_;
  std::vector<const PageId*> chunk_pointers_;
};

class PagedMemory {
 public:
  // `page_seed` decides the order in which pages are taken.
  static absl::StatusOr<PagedMemory> Create(Backend& backend, const AttentionSpec& spec,
                                            int32_t num_pages, uint64_t page_seed);

  KvStore& store() { return *store_; }
  // REQUIRES: so many pages are left.
  std::vector<PageId> Take(int64_t num_pages);
  // Pages for `num_tokens` tokens.
  std::vector<PageId> TakeFor(int64_t num_tokens);
  // Writes `value` into every slot of these pages, in all layers.
  absl::Status Fill(Backend& backend, const std::vector<PageId>& pages, float value);

 private:
  PagedMemory() = default;

  std::unique_ptr<KvStore> store_;
  std::vector<PageId> free_pages_;
};

// Launches and waits.
absl::Status Execute(Backend& backend, KvStore& store, const Batch& batch);

}  // namespace attn::test
