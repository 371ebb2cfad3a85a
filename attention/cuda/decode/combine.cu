#include "attention/cuda/decode/combine.cuh"

#include <cstdint>

#include "attention/cuda/decode/config.h"
#include "attention/cuda/decode/partial_row.cuh"
#include "attention/cuda/ptx/fence.cuh"
#include "attention/cuda/ptx/load.cuh"

namespace attn::cuda {
namespace {

constexpr int kOutputsPerLane = kKvHeadDim / 32;
using LanePart = PartialRow<kOutputsPerLane>;
// Chunks of one warp: spans of 2^kMaxSpanLog2 extents over 8 warps, 8 extents a chunk.
constexpr int kChunkLevels = kMaxSpanLog2 - 3 - 3;

struct Merger {
  const DecodeArgs& args;
  const CombineItem& item;
  int32_t kv_head;
  int32_t row;  // within the block
  int lane;

  // The extent at a position of the span; nothing where there is none.
  __device__ __forceinline__ LanePart Read(int32_t position) const {
    LanePart part;
    const int32_t number = position - item.first_position;
    if (number < 0 || number >= item.num_partials) return part;
    const int64_t index = PartialIndex(args, item.first_partial + number, kv_head, row);
    const float2 state = args.partial_state[index];
    const float4 out = *reinterpret_cast<const float4*>(args.partial_out + index * kKvHeadDim +
                                                        lane * kOutputsPerLane);
    part.max = state.x;
    part.sum = state.y;
    part.out[0] = out.x;
    part.out[1] = out.y;
    part.out[2] = out.z;
    part.out[3] = out.w;
    return part;
  }

  // Positions [begin, begin + kCombineChunk), of which those from `end` on belong to others. All
  // loads are under way before the first is used.
  __device__ __forceinline__ LanePart ReadChunk(int32_t begin, int32_t end) const {
    LanePart parts[kCombineChunk];
#pragma unroll
    for (int i = 0; i < kCombineChunk; ++i) {
      if (begin + i < end) parts[i] = Read(begin + i);
    }
#pragma unroll
    for (int step = 1; step < kCombineChunk; step *= 2) {
#pragma unroll
      for (int i = 0; i < kCombineChunk; i += 2 * step) {
        parts[i] = MergedRows(parts[i], parts[i + step], args.score.log2_scale);
      }
    }
    return parts[0];
  }

  // An aligned run of positions.
  __device__ __forceinline__ LanePart ReadRun(int32_t begin, int32_t length) const {
    if (length <= kCombineChunk) return ReadChunk(begin, begin + length);
    MergeStack<kOutputsPerLane, kChunkLevels> stack;
    LanePart total;
    for (int32_t chunk = 0; chunk * kCombineChunk < length; ++chunk) {
      const int32_t chunk_begin = begin + chunk * kCombineChunk;
      total = stack.Push(ReadChunk(chunk_begin, begin + length), chunk, args.score.log2_scale);
    }
    return total;
  }
};

}  // namespace

__global__ void __launch_bounds__(32 * kCombineWarps)
    MergeExtents(const __grid_constant__ DecodeArgs args) {
  __shared__ LanePart warp_parts[kCombineWarps][32];
  const auto [item_index, kv_head] = args.pool.ItemOf(static_cast<int32_t>(blockIdx.x));
  const CombineItem item = ptx::LoadRecord(args.combines + item_index);
  const EntryRecord entry = ptx::LoadRecord(args.entries + item.entry);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool has_own_row = item.row < 0;
  const int32_t row = has_own_row ? warp : item.row;
  const Merger merger{args, item, kv_head, row, lane};
  const DecodeRow at = DecodeRowOf(args, item.row_block, row);
  if (kv_head < entry.kv_head_begin || kv_head >= entry.kv_head_end) return;
  ptx::WaitForPrecedingKernel();
  if (has_own_row) {
    if (row >= args.rows_per_block) return;
    WriteRow(args, entry, kv_head, at, merger.ReadRun(0, 1 << item.span_log2),
             lane * kOutputsPerLane);
    return;
  }
  const int32_t run = (1 << item.span_log2) / kCombineWarps;
  warp_parts[warp][lane] = merger.ReadRun(warp * run, run);
  __syncthreads();
  if (warp != 0) return;
  LanePart parts[kCombineWarps];
#pragma unroll
  for (int i = 0; i < kCombineWarps; ++i) parts[i] = warp_parts[i][lane];
#pragma unroll
  for (int step = 1; step < kCombineWarps; step *= 2) {
#pragma unroll
    for (int i = 0; i < kCombineWarps; i += 2 * step) {
      parts[i] = MergedRows(parts[i], parts[i + step], args.score.log2_scale);
    }
  }
  WriteRow(args, entry, kv_head, at, parts[0], lane * kOutputsPerLane);
}

}  // namespace attn::cuda
