// The pages of one sequence in one layer group, as a launch reads them. A view: it owns nothing.
#pragma once

#include <cstdint>

#include "attn/base/ids.h"

namespace attn::kvcache {

// Page ids stand in chunks of kPagesPerChunk, so that forks can share them.
inline constexpr int kPagesPerChunkLog2 = 9;
inline constexpr int kPagesPerChunk = 1 << kPagesPerChunkLog2;

// Valid until the next call that changes the sequence.
struct PageTable {
  // [ceil(num_pages / kPagesPerChunk)]; each points to kPagesPerChunk ids.
  const PageId* const* chunks = nullptr;
  int32_t num_pages = 0;
  // Pages before this index hold nothing any row may read (behind a window). 0 for now.
  int32_t first_resident = 0;

  // REQUIRES: 0 <= index < num_pages.
  PageId operator[](int32_t index) const {
    return chunks[index >> kPagesPerChunkLog2][index & (kPagesPerChunk - 1)];
  }
};

}  // namespace attn::kvcache
