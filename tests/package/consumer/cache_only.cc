// A program with its own attention that takes the bookkeeping of pages only.
#include <cstdio>

#include "attn/kvcache/kv_cache.h"

int main() {
  attn::kvcache::KvCache cache({.budget_bytes = 1 << 20});
  const attn::kvcache::CacheGroup group = {.layers = {0}, .page_bytes = 4096};
  const auto model = cache.AddModel({.num_layers = 1, .page_size = 16, .groups = {group}});
  if (!model.ok()) return 1;
  const auto id = cache.Open({.model = *model, .owner = "consumer"}, 0);
  if (!id.ok()) return 2;
  auto pages = cache.Extend({.sequence = *id, .layer = 0, .count = 20, .append_token = 1});
  if (!pages.ok()) return 3;
  pages->Commit();
  if (cache.TableOf(*id, 0).num_pages != 2 || !cache.CheckInvariants().ok()) return 4;
  std::printf("20 tokens on 2 pages\n");
  return cache.Close(*id).ok() ? 0 : 5;
}
