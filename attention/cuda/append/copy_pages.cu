#include "attention/cuda/append/copy_pages.h"

#include "absl/container/flat_hash_set.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {
namespace {

constexpr int kThreads = 128;

// One CTA for every copy and block of the page.
__global__ void __launch_bounds__(kThreads)
    CopyPages(const __grid_constant__ KvPool pool, const PageCopyRecord* copies) {
  const int32_t blocks = pool.blocks_per_page();
  const auto cta = static_cast<int32_t>(blockIdx.x);
  const PageCopyRecord& copy = copies[cta / blocks];
  const int32_t block = cta % blocks;
  const int32_t layer = block / (2 * pool.num_kv_heads);
  const auto* source = reinterpret_cast<const uint4*>(
      pool.base + pool.OffsetOf(pool.BlockOf(copy.source, block), 0));
  auto* target =
      reinterpret_cast<uint4*>(pool.base + pool.OffsetOf(pool.BlockOf(copy.target, block), 0));
  const auto chunks = int64_t{copy.slots_per_layer[layer]} * kChunksPerRow;
  for (auto i = static_cast<int64_t>(threadIdx.x); i < chunks; i += kThreads) {
    target[i] = source[i];
  }
}

}  // namespace

std::vector<int> IndependentRuns(absl::Span<const PageCopyRecord> copies) {
  std::vector<int> runs;
  absl::flat_hash_set<int32_t> read, written;
  for (const PageCopyRecord& copy : copies) {
    const bool depends = written.contains(copy.source) || written.contains(copy.target) ||
                         read.contains(copy.target);
    if (runs.empty() || depends) {
      read.clear();
      written.clear();
      runs.push_back(0);
    }
    ++runs.back();
    read.insert(copy.source);
    written.insert(copy.target);
  }
  return runs;
}

absl::Status LaunchCopyPages(const KvPool& pool, const PageCopyRecord* copies, int num_copies,
                             cudaStream_t stream) {
  if (num_copies == 0) return absl::OkStatus();
  const auto ctas = static_cast<unsigned>(num_copies * pool.blocks_per_page());
  CopyPages<<<ctas, kThreads, 0, stream>>>(pool, copies);
  return ATTN_CUDA_STATUS(cudaGetLastError());
}

}  // namespace attn::cuda
