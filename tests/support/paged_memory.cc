#include "tests/support/paged_memory.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "attn/base/check.h"
#include "attn/base/status_macros.h"

namespace attn::test {

PageIds::PageIds(std::vector<PageId> ids, int32_t chunk_log2)
    : chunk_log2_(chunk_log2), num_pages_(static_cast<int32_t>(ids.size())) {
  const size_t per_chunk = std::min(ids.size(), size_t{1} << chunk_log2);
  for (size_t begin = 0; begin < ids.size(); begin += per_chunk) {
    const size_t end = std::min(ids.size(), begin + per_chunk);
    chunks_.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                         ids.begin() + static_cast<std::ptrdiff_t>(end));
  }
  for (const std::vector<PageId>& chunk : chunks_) chunk_pointers_.push_back(chunk.data());
}

PageList PageIds::view() const {
  return {.chunks = chunk_pointers_.data(), .chunk_log2 = chunk_log2_, .num_pages = num_pages_};
}

absl::StatusOr<PagedMemory> PagedMemory::Create(Backend& backend, const AttentionSpec& spec,
                                                int32_t num_pages, uint64_t page_seed) {
  PagedMemory memory;
  ATTN_ASSIGN_OR_RETURN(memory.store_, backend.CreateKvStore(spec, {.num_pages = num_pages}));
  if (num_pages == 0) return memory;
  ATTN_RETURN_IF_ERROR(memory.store_->CommitPages(0, num_pages));
  memory.free_pages_.resize(static_cast<size_t>(num_pages));
  std::iota(memory.free_pages_.begin(), memory.free_pages_.end(), 0);
  Random(page_seed).Shuffle(memory.free_pages_);
  ATTN_RETURN_IF_ERROR(
      memory.Fill(backend, memory.free_pages_, std::numeric_limits<float>::quiet_NaN()));
  return memory;
}

std::vector<PageId> PagedMemory::Take(int64_t num_pages) {
  ATTN_CHECK(num_pages <= static_cast<int64_t>(free_pages_.size()), "want ", num_pages, " of ",
             free_pages_.size(), " pages");
  const std::vector<PageId> taken(free_pages_.end() - num_pages, free_pages_.end());
  free_pages_.resize(free_pages_.size() - taken.size());
  return taken;
}

std::vector<PageId> PagedMemory::TakeFor(int64_t num_tokens) {
  const int64_t page_size = store_->spec().page_size;
  return Take((num_tokens + page_size - 1) / page_size);
}

absl::Status PagedMemory::Fill(Backend& backend, const std::vector<PageId>& pages, float value) {
  const AttentionSpec& spec = store_->spec();
  const size_t count = pages.size() * spec.page_size;
  const size_t elements = count * spec.num_kv_heads * std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<char> tensor(elements * SizeOf(spec.activation_dtype));
  for (size_t i = 0; i < elements; ++i) {
    StoreFromFloat(spec.activation_dtype, tensor.data(), static_cast<int64_t>(i), value);
  }
  const PageIds ids(pages, 31);
  Batch batch;
  for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    batch.appends.push_back({.k = tensor.data(),
                             .v = tensor.data(),
                             .pages = ids.view(),
                             .layer = layer,
                             .begin = 0,
                             .count = static_cast<uint32_t>(count)});
  }
  return Execute(backend, *store_, batch);
}

absl::Status Execute(Backend& backend, KvStore& store, const Batch& batch) {
  ATTN_ASSIGN_OR_RETURN(const Ticket ticket, backend.Launch(store, batch));
  return backend.Wait(ticket);
}

}  // namespace attn::test
