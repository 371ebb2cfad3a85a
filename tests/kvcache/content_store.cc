#include "tests/kvcache/content_store.h"

#include <algorithm>

namespace attn::kvcache::test {

void ContentStore::AddModel(ModelSlot slot, const CacheModel& model, const KvCache& cache) {
  models_[slot] = model;
  for (uint32_t g = 0; g < model.groups.size(); ++g) {
    Pool& pool = pools_[{slot, g}];
    pool.num_layers = model.groups[g].layers.size();
    pool.page_size = model.page_size;
    const size_t num_pages = static_cast<size_t>(cache.GeometryOf(model, g).num_pages);
    pool.slots.assign(num_pages * pool.num_layers * pool.page_size, kPoison);
  }
}

std::pair<uint32_t, uint32_t> ContentStore::Find(ModelSlot slot, uint32_t layer) const {
  const CacheModel& model = models_.at(slot);
  for (uint32_t g = 0; g < model.groups.size(); ++g) {
    const std::vector<uint32_t>& layers = model.groups[g].layers;
    const auto found = std::find(layers.begin(), layers.end(), layer);
    if (found != layers.end()) return {g, static_cast<uint32_t>(found - layers.begin())};
  }
  return {UINT32_MAX, UINT32_MAX};
}

void ContentStore::Perform(const PageMove& move) {
  Pool& pool = pools_.at({move.model, move.group});
  for (size_t layer = 0; layer < pool.num_layers; ++layer) {
    std::copy_n(pool.slots.begin() + static_cast<int64_t>(pool.Index(move.source, layer, 0)),
                move.slots_per_layer.at(layer),
                pool.slots.begin() + static_cast<int64_t>(pool.Index(move.target, layer, 0)));
  }
}

void ContentStore::Write(ModelSlot slot, uint32_t layer, const PageTable& pages, uint32_t begin,
                         std::span<const Token> tokens) {
  const auto [group, index] = Find(slot, layer);
  Pool& pool = pools_.at({slot, group});
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t position = begin + static_cast<uint32_t>(i);
    const PageId page = pages[static_cast<int32_t>(position / pool.page_size)];
    pool.slots.at(pool.Index(page, index, position % pool.page_size)) = tokens[i];
  }
}

std::vector<Token> ContentStore::Read(ModelSlot slot, uint32_t layer, const PageTable& pages,
                                      uint32_t len) const {
  const auto [group, index] = Find(slot, layer);
  const Pool& pool = pools_.at({slot, group});
  std::vector<Token> tokens;
  for (uint32_t position = 0; position < len; ++position) {
    const PageId page = pages[static_cast<int32_t>(position / pool.page_size)];
    tokens.push_back(pool.slots.at(pool.Index(page, index, position % pool.page_size)));
  }
  return tokens;
}

void ContentStore::PoisonAllBut(ModelSlot slot, uint32_t group, const Extents& kept) {
  Pool& pool = pools_.at({slot, group});
  const size_t slots_per_page = pool.num_layers * pool.page_size;
  for (PageId page = 0; static_cast<size_t>(page) * slots_per_page < pool.slots.size(); ++page) {
    const auto found = kept.find(page);
    for (size_t layer = 0; layer < pool.num_layers; ++layer) {
      const uint32_t first = found == kept.end() ? 0 : found->second.at(layer);
      std::fill(pool.slots.begin() + static_cast<int64_t>(pool.Index(page, layer, first)),
                pool.slots.begin() + static_cast<int64_t>(pool.Index(page, layer, pool.page_size)),
                kPoison);
    }
  }
}

}  // namespace attn::kvcache::test
