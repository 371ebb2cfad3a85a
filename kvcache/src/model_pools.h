// A model as the cache knows it: which layer lies in which group, and each group's pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/page_pool.h"
#include "kvcache/src/slab_budget.h"

namespace attn::kvcache {

// OK, or INVALID or TOO_LARGE naming the field.
absl::Status CheckModel(const CacheModel& model, const SlabBudget& budget);

class ModelPools {
 public:
  // `budget` outlives this. REQUIRES: CheckModel(model, *budget).ok().
  ModelPools(ModelSlot slot, const CacheModel& model, SlabBudget* budget);
  // Slabs go back to the budget. REQUIRES: no page in use.
  ~ModelPools();
  ModelPools(const ModelPools&) = delete;
  ModelPools& operator=(const ModelPools&) = delete;

  uint32_t num_layers() const { return definition_.num_layers; }
  uint32_t page_size() const { return definition_.page_size; }
  uint32_t num_groups() const { return static_cast<uint32_t>(definition_.groups.size()); }
  const std::vector<uint32_t>& LayersOf(uint32_t group) const {
    return definition_.groups[group].layers;
  }
  uint32_t GroupOf(uint32_t layer) const { return group_of_layer_[layer]; }
  PagePool& pool(uint32_t group) { return *pools_[group]; }
  const PagePool& pool(uint32_t group) const { return *pools_[group]; }

  int64_t PagesFor(uint64_t num_tokens) const {
    return static_cast<int64_t>((num_tokens + page_size() - 1) / page_size());
  }

  int64_t num_sequences = 0;

 private:
  const CacheModel definition_;
  SlabBudget* const budget_;
  std::vector<uint32_t> group_of_layer_;          // [num_layers]
  std::vector<std::unique_ptr<PagePool>> pools_;  // [num_groups]
};

}  // namespace attn::kvcache
