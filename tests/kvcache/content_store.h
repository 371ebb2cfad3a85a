// Stands for the device: keeps what is in every slot of every page, so that tests see which tokens
// a sequence would read. A token is a number; kPoison stands where nothing may be read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "attn/kvcache/kv_cache.h"

namespace attn::kvcache::test {

using Token = int64_t;
inline constexpr Token kPoison = -1;

class ContentStore {
 public:
  void AddModel(ModelSlot slot, const CacheModel& model, const KvCache& cache);

  void Perform(const PageMove& move);
  // Layers are layer numbers of the model.
  void Write(ModelSlot slot, uint32_t layer, const PageTable& pages, uint32_t begin,
             std::span<const Token> tokens);
  std::vector<Token> Read(ModelSlot slot, uint32_t layer, const PageTable& pages,
                          uint32_t len) const;

  // How many slots of each page hold something, per layer of the group.
  using Extents = std::map<PageId, std::vector<uint32_t>>;
  // Poisons every slot of the group that `kept` does not name.
  void PoisonAllBut(ModelSlot slot, uint32_t group, const Extents& kept);

  const CacheModel& model(ModelSlot slot) const { return models_.at(slot); }
  uint32_t GroupOf(ModelSlot slot, uint32_t layer) const { return Find(slot, layer).first; }

 private:
  struct Pool {
    size_t num_layers = 0;
    uint32_t page_size = 0;
    std::vector<Token> slots;  // [num_pages, num_layers, page_size]

    size_t Index(PageId page, size_t layer, uint32_t slot) const {
      return (static_cast<size_t>(page) * num_layers + layer) * page_size + slot;
    }
  };

  // Group and index in the group of a layer.
  std::pair<uint32_t, uint32_t> Find(ModelSlot slot, uint32_t layer) const;

  std::map<ModelSlot, CacheModel> models_;
  std::map<std::pair<ModelSlot, uint32_t>, Pool> pools_;
};

}  // namespace attn::kvcache::test
