// Attention of at most 16 query rows over paged keys and values. Memory-bound: four warps, each on
// its own ring of stages, each every fourth block of 16 keys; no CTA barrier but one pair per leaf
// of 256 keys, where the warps' parts are merged.
//
// Operands are swapped, S^T = K Q^T and O^T = V^T P^T: keys and dims fill the 16 rows of a product,
// packed query rows its 8 columns.
//
//   barrier       arrives                            waits         says
//   full[stage]   copy engine (bytes), or 32 lanes   its own warp  the stage holds keys and values
// A stage is refilled by the warp itself after __syncwarp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention/cuda/decode/args.h"
#include "attention/cuda/decode/block_loader.cuh"
#include "attention/cuda/decode/config.h"
#include "attention/cuda/decode/partial_row.cuh"
#include "attention/cuda/decode/shared_layout.h"
#include "attention/cuda/ptx/fence.cuh"
#include "attention/cuda/ptx/load.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/ptx/mma.cuh"
#include "attention/cuda/ptx/regs.cuh"
#include "attention/cuda/tile/fragment.h"
#include "attention/cuda/tile/softmax_tile.cuh"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {

// What a thread owns of a merged leaf.
inline constexpr int kOutputsPerThread = kDecodeRows * kKvHeadDim / kDecodeThreads;

// What a CTA works on.
struct DecodeWork {
  DecodeItem item;
  int32_t kv_head;
  int32_t num_rows;  // of the block that exist
  score::VisibleRange range;
  score::Interval keys;  // of the extent that some row sees

  __device__ __forceinline__ DecodeWork(const DecodeArgs& args, const DecodeItem& given,
                                        const EntryRecord& entry, int32_t head)
      : item(given), kv_head(head), range(args.score.RangeOf(entry)) {
    const int32_t rows_left = entry.q_len * args.rows.group_size - item.row_block * kDecodeRows;
    num_rows = rows_left < kDecodeRows ? rows_left : kDecodeRows;
    const int64_t first = entry.q_start + DecodeRowOf(args, item.row_block, 0).query;
    const int64_t last = entry.q_start + DecodeRowOf(args, item.row_block, num_rows - 1).query;
    const int64_t extent_begin = int64_t{item.first_leaf} * kLeafKeys;
    const int64_t extent_end = extent_begin + item.num_leaves * kLeafKeys;
    keys = score::Intersect(range.KeysOfRows(first, last), {extent_begin, extent_end});
    if (num_rows <= 0 || keys.empty()) keys = {extent_begin, extent_begin};
  }

  __device__ __forceinline__ int32_t extent_begin() const { return item.first_leaf * kLeafKeys; }
  // Leaves [first, last) of the extent hold visible keys.
  __device__ __forceinline__ int32_t first_leaf() const {
    return static_cast<int32_t>(keys.begin - extent_begin()) / kLeafKeys;
  }
  __device__ __forceinline__ int32_t last_leaf() const {
    return static_cast<int32_t>(keys.end - extent_begin() + kLeafKeys - 1) / kLeafKeys;
  }
};

// The rows of one warp over its blocks of a leaf. Columns 2 (lane % 4) and the next one are this
// lane's rows.
struct DecodeWarpState {
  float max[2] = {score::kNoScore, score::kNoScore};
  float sum[2] = {};  // of this lane's keys only
  float out[kKvHeadDim / 16][4] = {};
};

template <DecodeConfig kConfig>
struct DecodeWarp {
  using Loader =
      std::conditional_t<kConfig.load == KvLoad::kBoxes, DecodeBoxLoader, DecodeGatherLoader>;

  const DecodeArgs& args;
  const DecodeWork& work;
  const int warp;
  const int lane;
  uint32_t query[kKvHeadDim / 8];  // right operand of all products with keys
  int32_t begin[2];                // keys that this lane's rows see, from the extent's begin
  int32_t end[2];
  int key_offset;  // of this lane's row for ldmatrix, keys and values
  int value_offset;

  __device__ __forceinline__ DecodeWarp(const DecodeArgs& launch, const DecodeWork& cta_work,
                                        int own_warp, int own_lane)
      : args(launch), work(cta_work), warp(own_warp), lane(own_lane) {
    const int matrix = lane / 8;
    key_offset = GroupedTileOffset(lane % 8 + 8 * (matrix % 2), matrix / 2);
    value_offset = GroupedTileOffset(lane % 8 + 8 * (matrix / 2), matrix % 2);
  }

  __device__ __forceinline__ void FindBounds(const EntryRecord& entry) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * (lane % 4) + i;
      const int query_row = DecodeRowOf(args, work.item.row_block, row).query;
      const score::Interval seen = work.range.KeysOf(entry.q_start + query_row);
      const bool exists = row < work.num_rows;
      begin[i] = static_cast<int32_t>(seen.begin) - work.extent_begin();
      end[i] = exists ? static_cast<int32_t>(seen.end) - work.extent_begin() : 0;
    }
  }

  __device__ __forceinline__ void LoadQueries(const EntryRecord& entry) {
    const int row = lane / 4;
    const DecodeRow at = DecodeRowOf(args, work.item.row_block, row);
    const int32_t head = work.kv_head * args.rows.group_size + at.head;
    const uint16_t* source = args.q +
                             ((entry.q_row + at.query) * args.num_q_heads + head) * kKvHeadDim +
                             RightOperand(lane, 0, 0).row;
#pragma unroll
    for (int i = 0; i < kKvHeadDim / 8; ++i) {
      query[i] = row < work.num_rows ? *reinterpret_cast<const uint32_t*>(source + 8 * i) : 0u;
    }
  }

  // For scales of zero or below: the factor of the queries is -1 or 0.
  __device__ __forceinline__ void ApplyQueryFactor() {
    const uint32_t keep = args.score.query_factor == 0.0f ? 0u : ~0u;
    const uint32_t flip = args.score.query_factor < 0.0f ? 0x80008000u : 0u;
#pragma unroll
    for (int i = 0; i < kKvHeadDim / 8; ++i) query[i] = (query[i] & keep) ^ flip;
  }

  // Slots at and beyond the end of the keys may hold NaN, and a weight of 0 does not stop it.
  __device__ __forceinline__ void ClearValuesFrom(uint8_t* values, int32_t first_row) const {
    for (int i = first_row * kChunksPerRow + lane; i < kDecodeBlock * kChunksPerRow; i += 32) {
      const int offset = GroupedTileOffset(i / kChunksPerRow, i % kChunksPerRow);
      *reinterpret_cast<uint4*>(values + offset) = uint4{0, 0, 0, 0};
    }
    ptx::FenceProxyAsync();
    __syncwarp();
  }

  // Scores of this lane's two rows with keys lane / 4 and lane / 4 + 8, masked.
  __device__ __forceinline__ void Score(uint32_t keys_smem, int32_t first_key,
                                        float (&scores)[4]) const {
#pragma unroll
    for (int step = 0; step < kKvHeadDim / 16; ++step) {
      uint32_t keys[4];
      ptx::LoadMatrices(keys, keys_smem + GroupedTileOffsetFrom(key_offset, step));
      ptx::MultiplyM16N8K16(scores, keys, query[2 * step], query[2 * step + 1]);
    }
    if (!args.score.op.IsLinear()) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[i] = CappedScore(args.score.op, scores[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t key = first_key + lane / 4 + 8 * (i / 2);
      if (key < begin[i % 2] || key >= end[i % 2]) scores[i] = score::kNoScore;
    }
  }

  // Scores become weights; earlier sums and outputs follow a new maximum.
  __device__ __forceinline__ void Weigh(float (&scores)[4], DecodeWarpState& state) const {
    float new_max[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float block_max = fmaxf(scores[i], scores[i + 2]);
      block_max = fmaxf(block_max, __shfl_xor_sync(~0u, block_max, 4));
      block_max = fmaxf(block_max, __shfl_xor_sync(~0u, block_max, 8));
      block_max = fmaxf(block_max, __shfl_xor_sync(~0u, block_max, 16));
      new_max[i] = fmaxf(state.max[i], block_max);
    }
    // A factor of exactly 1 changes nothing, so neighbours may decide whether it is applied.
    if (__any_sync(~0u, new_max[0] != state.max[0] || new_max[1] != state.max[1])) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float rescale = ptx::Exp2Fast(
            __fmul_rn(__fsub_rn(state.max[i], score::ShiftOf(new_max[i])), args.score.log2_scale));
        state.max[i] = new_max[i];
        state.sum[i] = __fmul_rn(state.sum[i], rescale);
#pragma unroll
        for (int tile = 0; tile < kKvHeadDim / 16; ++tile) {
          state.out[tile][i] *= rescale;
          state.out[tile][i + 2] *= rescale;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float shift = score::ShiftOf(state.max[i % 2]);
      scores[i] = ptx::Exp2Fast(__fmul_rn(__fsub_rn(scores[i], shift), args.score.log2_scale));
      state.sum[i % 2] = __fadd_rn(state.sum[i % 2], scores[i]);
    }
  }

  // One block of 16 keys in shared memory.
  __device__ __forceinline__ void Take(uint8_t* stage, int32_t first_key,
                                       DecodeWarpState& state) const {
    uint8_t* values = stage + kDecodeTileBytes;
    const int32_t keys_left =
        static_cast<int32_t>(work.range.kv_end) - work.extent_begin() - first_key;
    if (keys_left < kDecodeBlock) ClearValuesFrom(values, keys_left);
    float weights[4] = {};
    Score(ptx::SharedAddress(stage), first_key, weights);
    Weigh(weights, state);
    const uint32_t right0 = ptx::TransposeMatrix(ptx::PackBf16(weights[0], weights[1]));
    const uint32_t right1 = ptx::TransposeMatrix(ptx::PackBf16(weights[2], weights[3]));
    const uint32_t values_smem = ptx::SharedAddress(values);
#pragma unroll
    for (int tile = 0; tile < kKvHeadDim / 16; ++tile) {
      uint32_t left[4];
      ptx::LoadMatricesTransposed(left, values_smem + GroupedTileOffsetFrom(value_offset, tile));
      ptx::MultiplyM16N8K16(state.out[tile], left, right0, right1);
    }
  }

  // Leaves the warp's part of a leaf in its merge area.
  __device__ __forceinline__ void Store(DecodeWarpState& state, float* merge) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      state.sum[i] += __shfl_xor_sync(~0u, state.sum[i], 4);
      state.sum[i] += __shfl_xor_sync(~0u, state.sum[i], 8);
      state.sum[i] += __shfl_xor_sync(~0u, state.sum[i], 16);
      const int row = 2 * (lane % 4) + i;
      if (row >= args.rows_per_block) continue;
      float* target = merge + row * kMergeRowFloats;
#pragma unroll
      for (int tile = 0; tile < kKvHeadDim / 16; ++tile) {
        target[16 * tile + lane / 4] = state.out[tile][i];
        target[16 * tile + lane / 4 + 8] = state.out[tile][i + 2];
      }
      if (lane < 4) {
        target[kKvHeadDim] = state.max[i];
        target[kKvHeadDim + 1] = state.sum[i];
      }
    }
  }
};

// What one thread owns of the merged rows: kOutputsPerThread outputs of one row.
struct MergeOwner {
  int row;
  int first;

  __device__ __forceinline__ explicit MergeOwner(int thread)
      : row(thread / (kKvHeadDim / kOutputsPerThread)),
        first(thread % (kKvHeadDim / kOutputsPerThread) * kOutputsPerThread) {}

  __device__ __forceinline__ PartialRow<kOutputsPerThread> Read(const float* merge) const {
    const float* source = merge + row * kMergeRowFloats;
    PartialRow<kOutputsPerThread> part;
    part.max = source[kKvHeadDim];
    part.sum = source[kKvHeadDim + 1];
#pragma unroll
    for (int i = 0; i < kOutputsPerThread; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(source + first + i);
      part.out[i] = four.x;
      part.out[i + 1] = four.y;
      part.out[i + 2] = four.z;
      part.out[i + 3] = four.w;
    }
    return part;
  }
};

__device__ __forceinline__ void WritePartial(const DecodeArgs& args, const DecodeWork& work,
                                             const MergeOwner& owner,
                                             const PartialRow<kOutputsPerThread>& part) {
  const int64_t index = PartialIndex(args, work.item.partial, work.kv_head, owner.row);
  if (owner.first == 0) args.partial_state[index] = float2{part.max, part.sum};
  float* target = args.partial_out + index * kKvHeadDim + owner.first;
#pragma unroll
  for (int i = 0; i < kOutputsPerThread; i += 4) {
    *reinterpret_cast<float4*>(target + i) =
        float4{part.out[i], part.out[i + 1], part.out[i + 2], part.out[i + 3]};
  }
}

// The blocks of the extent that this warp takes: those that hold visible keys.
__device__ __forceinline__ WarpBlocks BlocksOf(const DecodeArgs& args, const DecodeWork& work,
                                               const EntryRecord& entry, int warp) {
  constexpr int kStride = kDecodeWarps * kDecodeBlock;
  const int32_t own_begin = work.extent_begin() + warp * kDecodeBlock;
  // The first of own_begin + n * kStride that lies above key - kDecodeBlock, and so on.
  const int32_t skip = static_cast<int32_t>(work.keys.begin) - own_begin - kDecodeBlock;
  const int32_t first = skip < 0 ? 0 : skip / kStride + 1;
  const int32_t span = static_cast<int32_t>(work.keys.end) - own_begin;
  const int32_t last = span <= 0 ? 0 : (span + kStride - 1) / kStride;
  WarpBlocks blocks;
  blocks.key_block = args.pool.KeyBlockInPage(entry.layer, work.kv_head);
  blocks.first_key = own_begin + first * kStride;
  blocks.kv_end = entry.kv_end;
  blocks.skipped = first;
  blocks.count = last > first ? last - first : 0;
  // Several row blocks read the same keys one after the other.
  blocks.evicts_first = !entry.shares_pages && entry.q_len * args.rows.group_size <= kDecodeRows;
  return blocks;
}

template <typename Instance>
__global__ void __launch_bounds__(kDecodeThreads, 3)
    AttendDecode(const __grid_constant__ DecodeArgs args) {
  constexpr DecodeConfig kConfig = Instance::kConfig;
  static_assert(kConfig.head_dim == kKvHeadDim);
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  ptx::LaunchDependents();

  using Warp = DecodeWarp<kConfig>;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const DecodeSharedLayout layout{args.stages, args.rows_per_block};
  uint8_t* stages = shared_bytes + layout.StageOffset(warp, 0);
  auto* merge = reinterpret_cast<float*>(shared_bytes + layout.MergeOffset(warp));
  auto* full = reinterpret_cast<ptx::Barrier*>(shared_bytes + layout.BarrierOffset(warp));
  if (lane < args.stages) ptx::InitBarrier(&full[lane], Warp::Loader::kArrivals);
  ptx::FenceBarrierInit();
  __syncwarp();

  // What is needed first is asked for first, and nothing waits before all is under way: the item,
  // then page ids and the entry, then queries.
  const auto [item_index, kv_head] = args.pool.ItemOf(static_cast<int32_t>(blockIdx.x));
  const DecodeItem item = ptx::LoadRecord(args.items + item_index);
  const EntryRecord entry = ptx::LoadRecord(args.entries + item.entry);
  typename Warp::Loader loader(args, item, warp, lane);
  if (kv_head < entry.kv_head_begin || kv_head >= entry.kv_head_end) return;
  const DecodeWork work(args, item, entry, kv_head);
  const WarpBlocks blocks = BlocksOf(args, work, entry, warp);
  Warp decode(args, work, warp, lane);
  decode.LoadQueries(entry);
  loader.Start(item, blocks);
  int32_t issued = 0;
  for (; issued < args.stages && issued < blocks.count; ++issued) {
    loader.Issue(blocks, issued, stages + issued * kDecodeStageBytes, &full[issued]);
  }
  decode.FindBounds(entry);
  if (args.score.query_factor != 1.0f) decode.ApplyQueryFactor();

  const MergeOwner owner(static_cast<int>(threadIdx.x));
  MergeStack<kOutputsPerThread, kMaxExtentLog2> stack;
  PartialRow<kOutputsPerThread> total;
  int32_t taken = 0;
  int32_t stage = 0;
  uint32_t parity = 0;
  for (int32_t leaf = 0; leaf < item.num_leaves; ++leaf) {
    if (leaf < work.first_leaf() || leaf >= work.last_leaf()) {
      total = stack.Push(PartialRow<kOutputsPerThread>(), leaf, args.score.log2_scale);
      continue;
    }
    const int32_t leaf_end = work.extent_begin() + (leaf + 1) * kLeafKeys;
    DecodeWarpState state;
    while (taken < blocks.count && blocks.KeyOf(taken) < leaf_end) {
      ptx::WaitForPhase(&full[stage], parity);
      decode.Take(stages + stage * kDecodeStageBytes, blocks.KeyOf(taken) - work.extent_begin(),
                  state);
      __syncwarp();
      if (issued < blocks.count) {
        loader.Issue(blocks, issued++, stages + stage * kDecodeStageBytes, &full[stage]);
      }
      ++taken;
      if (++stage == args.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    decode.Store(state, merge);
    __syncthreads();
    if (owner.row < args.rows_per_block) {
      const auto* all = reinterpret_cast<const float*>(shared_bytes + layout.MergeOffset(0));
      const int step = args.rows_per_block * kMergeRowFloats;
      const float log2_scale = args.score.log2_scale;
      const auto low = MergedRows(owner.Read(all), owner.Read(all + step), log2_scale);
      const auto high =
          MergedRows(owner.Read(all + 2 * step), owner.Read(all + 3 * step), log2_scale);
      total = stack.Push(MergedRows(low, high, log2_scale), leaf, log2_scale);
    }
    __syncthreads();
  }
  if (owner.row >= args.rows_per_block) return;
  if (item.partial >= 0) {
    WritePartial(args, work, owner, total);
  } else if (owner.row < work.num_rows) {
    WriteRow(args, entry, kv_head, DecodeRowOf(args, item.row_block, owner.row), total,
             owner.first);
  }
}

}  // namespace attn::cuda
