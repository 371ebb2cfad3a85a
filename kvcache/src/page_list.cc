#include "kvcache/src/page_list.h"

#include <algorithm>

namespace attn::kvcache {

void PageList::AddChunk(PageChunk* chunk) {
  chunks_.push_back(chunk);
  ids_.push_back(chunk->ids);
}

int32_t PageList::NumPagesIn(int32_t chunk) const {
  return std::min(kPagesPerChunk, num_pages_ - chunk * kPagesPerChunk);
}

PageChunk* PageList::CopyOf(const PageChunk& chunk, int32_t num_pages, PagePool& pool) {
  auto* copy = new PageChunk;
  std::copy_n(chunk.ids, num_pages, copy->ids);
  for (int32_t i = 0; i < num_pages; ++i) pool.AddReference(chunk.ids[i]);
  return copy;
}

void PageList::Privatise(int32_t chunk, int32_t num_pages, PagePool& pool) {
  PageChunk* const shared = chunks_[chunk];
  if (shared->num_owners == 1) return;
  --shared->num_owners;
  chunks_[chunk] = CopyOf(*shared, num_pages, pool);
  ids_[chunk] = chunks_[chunk]->ids;
}

PageList PageList::Share(int32_t num_pages, PagePool& pool) const {
  PageList list;
  const int32_t num_chunks = NumChunksFor(num_pages);
  list.chunks_.reserve(num_chunks);
  list.ids_.reserve(num_chunks);
  list.num_pages_ = num_pages;
  for (int32_t c = 0; c < num_chunks; ++c) {
    if (list.NumPagesIn(c) == NumPagesIn(c)) {
      ++chunks_[c]->num_owners;
      list.AddChunk(chunks_[c]);
    } else {
      list.AddChunk(CopyOf(*chunks_[c], list.NumPagesIn(c), pool));
    }
  }
  return list;
}

void PageList::Append(PageId page, PagePool& pool) {
  const int32_t chunk = ChunkOf(num_pages_);
  if (num_pages_ % kPagesPerChunk == 0) {
    AddChunk(new PageChunk);
  } else {
    Privatise(chunk, NumPagesIn(chunk), pool);
  }
  chunks_[chunk]->ids[num_pages_ % kPagesPerChunk] = page;
  ++num_pages_;
}

void PageList::Replace(int32_t index, PageId page, PagePool& pool) {
  const int32_t chunk = ChunkOf(index);
  Privatise(chunk, NumPagesIn(chunk), pool);
  PageId& entry = chunks_[chunk]->ids[index % kPagesPerChunk];
  pool.Release(entry);
  entry = page;
}

void PageList::Trim(int32_t num_pages, PagePool& pool) {
  if (num_pages >= num_pages_) return;
  const int32_t num_chunks = NumChunksFor(num_pages);
  // From the back, so that the pages come off the free list again in their old order.
  for (int32_t c = ChunkOf(num_pages_ - 1); c >= 0 && num_pages_ > num_pages; --c) {
    const int32_t num_before = NumPagesIn(c);
    const int32_t num_after = std::max(0, num_pages - c * kPagesPerChunk);
    PageChunk* const chunk = chunks_[c];
    if (chunk->num_owners == 1) {
      for (int32_t i = num_before - 1; i >= num_after; --i) pool.Release(chunk->ids[i]);
      if (num_after == 0) delete chunk;
    } else if (num_after == 0) {
      --chunk->num_owners;
    } else {
      Privatise(c, num_after, pool);
    }
    num_pages_ = std::max(num_pages, c * kPagesPerChunk);
  }
  chunks_.resize(num_chunks);
  ids_.resize(num_chunks);
}

}  // namespace attn::kvcache
