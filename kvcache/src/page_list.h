// The page ids of one sequence in one layer group, in chunks of kPagesPerChunk that forks share.
//
// All owners of a chunk use exactly the pages it holds, and every chunk of a list but its last is
// full. So a page's reference count is the number of chunks that hold it, and sharing a list costs
// one count per chunk. Whoever wants a chunk otherwise (longer, shorter, with another page in it)
// takes a private copy first.
//
// A list does not remember its pool: calls that count references take it. Trim(0) before the end.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "attn/base/ids.h"
#include "attn/kvcache/page_table.h"
#include "kvcache/src/page_pool.h"

namespace attn::kvcache {

struct PageChunk {
  uint32_t num_owners = 1;  // page lists
  PageId ids[kPagesPerChunk];
};

class PageList {
 public:
  PageList() = default;
  PageList(PageList&& other) noexcept
      : chunks_(std::move(other.chunks_)),
        ids_(std::move(other.ids_)),
        num_pages_(std::exchange(other.num_pages_, 0)) {}
  PageList& operator=(PageList&&) = delete;
  void Swap(PageList& other) {
    chunks_.swap(other.chunks_);
    ids_.swap(other.ids_);
    std::swap(num_pages_, other.num_pages_);
  }

  int32_t num_pages() const { return num_pages_; }
  PageId operator[](int32_t index) const { return Table()[index]; }
  PageTable Table() const { return {.chunks = ids_.data(), .num_pages = num_pages_}; }
  const std::vector<PageChunk*>& chunks() const { return chunks_; }

  // Whether another list sees the page at this index.
  bool IsShared(int32_t index, const PagePool& pool) const {
    return chunks_[index >> kPagesPerChunkLog2]->num_owners > 1 ||
           pool.NumReferences((*this)[index]) > 1;
  }

  // A list of the first num_pages pages of this one, sharing what it can.
  PageList Share(int32_t num_pages, PagePool& pool) const;
  // Takes over the one reference that `page` has.
  void Append(PageId page, PagePool& pool);
  // Puts `page`, whose one reference it takes over, in place of the page at index, which it lets
  // go.
  void Replace(int32_t index, PageId page, PagePool& pool);
  // Keeps the first num_pages pages and lets the others go.
  void Trim(int32_t num_pages, PagePool& pool);

 private:
  static int32_t ChunkOf(int32_t index) { return index >> kPagesPerChunkLog2; }
  static int32_t NumChunksFor(int32_t num_pages) { return ChunkOf(num_pages + kPagesPerChunk - 1); }
  void AddChunk(PageChunk* chunk);
  // A chunk with the same first num_pages pages, one reference more to each.
  static PageChunk* CopyOf(const PageChunk& chunk, int32_t num_pages, PagePool& pool);
  // Makes a shared chunk private, with its first num_pages pages.
  void Privatise(int32_t chunk, int32_t num_pages, PagePool& pool);
  int32_t NumPagesIn(int32_t chunk) const;

  std::vector<PageChunk*> chunks_;
  std::vector<const PageId*> ids_;  // chunks_[i]->ids, as launches read them
  int32_t num_pages_ = 0;
};

}  // namespace attn::kvcache
