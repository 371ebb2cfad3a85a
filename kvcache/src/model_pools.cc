#include "kvcache/src/model_pools.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::kvcache {
namespace {

// Every layer in exactly one group. Counts first: num_layers may be any number a client sent.
absl::Status CheckLayers(const CacheModel& model) {
  uint64_t num_listed = 0;
  for (const CacheGroup& group : model.groups) num_listed += group.layers.size();
  if (num_listed != model.num_layers) {
    return MakeError(Reason::kInvalid, "groups",
                     absl::StrCat("got ", num_listed, " layers, want each of the ",
                                  model.num_layers, " layers in exactly one group"));
  }
  std::vector<bool> seen(model.num_layers, false);
  for (size_t g = 0; g < model.groups.size(); ++g) {
    for (const uint32_t layer : model.groups[g].layers) {
      if (layer >= model.num_layers || seen[layer]) {
        return MakeError(Reason::kInvalid, absl::StrCat("groups[", g, "].layers"),
                         absl::StrCat("got layer ", layer, ", want each of the ", model.num_layers,
                                      " layers in exactly one group"));
      }
      seen[layer] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const CacheModel& model, const SlabBudget& budget) {
  if (model.num_layers == 0) {
    return MakeError(Reason::kInvalid, "num_layers", "got 0, want at least 1");
  }
  if (model.page_size == 0) {
    return MakeError(Reason::kInvalid, "page_size", "got 0, want at least 1");
  }
  ATTN_RETURN_IF_ERROR(CheckLayers(model));
  int64_t one_slab_each = 0;
  for (size_t g = 0; g < model.groups.size(); ++g) {
    const CacheGroup& group = model.groups[g];
    if (group.layers.empty()) {
      return MakeError(Reason::kInvalid, absl::StrCat("groups[", g, "].layers"),
                       "got none, want at least 1");
    }
    if (group.page_bytes <= 0) {
      return MakeError(Reason::kInvalid, absl::StrCat("groups[", g, "].page_bytes"),
                       absl::StrCat("got ", group.page_bytes, ", want at least 1"));
    }
    const PoolGeometry geometry = budget.GeometryFor(group.page_bytes);
    const int64_t free_bytes = budget.budget_bytes() - one_slab_each;
    if (geometry.num_pages == 0 || group.page_bytes * geometry.pages_per_slab > free_bytes) {
      return MakeError(Reason::kTooLarge, absl::StrCat("groups[", g, "].page_bytes"),
                       absl::StrCat("got ", group.page_bytes, ", which leaves no page of every ",
                                    "group in the budget of ", budget.budget_bytes(), " bytes"));
    }
    one_slab_each += group.page_bytes * geometry.pages_per_slab;
  }
  return absl::OkStatus();
}

ModelPools::ModelPools(ModelSlot slot, const CacheModel& model, SlabBudget* budget)
    : definition_(model), budget_(budget), group_of_layer_(model.num_layers) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    for (const uint32_t layer : LayersOf(g)) group_of_layer_[layer] = g;
    const int64_t page_bytes = model.groups[g].page_bytes;
    pools_.push_back(std::make_unique<PagePool>(
        PagePool::Identity{.model = slot, .group = g, .page_bytes = page_bytes},
        budget->GeometryFor(page_bytes)));
    budget_->Add(pools_.back().get());
  }
}

ModelPools::~ModelPools() {
  for (const auto& pool : pools_) budget_->Remove(pool.get());
}

}  // namespace attn::kvcache
