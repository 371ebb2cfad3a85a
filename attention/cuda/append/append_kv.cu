// Moves bytes only: 16 at a time, a row of one head by 16 neighbouring threads.
#include "attention/cuda/append/append_kv.h"

#include "attention/cuda/cuda_status.h"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    AppendKv(const __grid_constant__ KvPool pool, const AppendRecord* records,
             const AppendItem* items) {
  const AppendItem item = items[blockIdx.x];
  const AppendRecord& record = records[item.record];
  const int32_t left = record.count - item.first;
  const int32_t slots = left < kAppendSlots ? left : kAppendSlots;
  const int32_t chunks_per_slot = pool.num_kv_heads * kChunksPerRow;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * slots * chunks_per_slot;
       i += kThreads) {
    const bool is_value = i >= slots * chunks_per_slot;
    const int32_t within = is_value ? i - slots * chunks_per_slot : i;
    const int32_t new_slot = item.first + within / chunks_per_slot;
    const int32_t head = within % chunks_per_slot / kChunksPerRow;
    const int32_t chunk = within % kChunksPerRow;
    const KvSlot at = pool.SlotOf(record.begin + new_slot);
    const int32_t page = record.page_table[at.page_index];
    const int32_t in_page =
        pool.KeyBlockInPage(record.layer, head) + (is_value ? pool.num_kv_heads : 0);
    const int64_t target = pool.OffsetOf(pool.BlockOf(page, in_page), at.slot);
    const auto* source = static_cast<const uint4*>(is_value ? record.v : record.k);
    *reinterpret_cast<uint4*>(pool.base + target + chunk * kChunkBytes) =
        source[int64_t{new_slot} * chunks_per_slot + head * kChunksPerRow + chunk];
  }
}

}  // namespace

absl::Status LaunchAppendKv(const KvPool& pool, const AppendRecord* records,
                            const AppendItem* items, int num_items, cudaStream_t stream) {
  if (num_items == 0) return absl::OkStatus();
  AppendKv<<<static_cast<unsigned>(num_items), kThreads, 0, stream>>>(pool, records, items);
  return ATTN_CUDA_STATUS(cudaGetLastError());
}

}  // namespace attn::cuda
