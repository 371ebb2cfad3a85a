// The computing side of a forward kernel: one warpgroup owns 64 packed query rows of the work tile
// and walks the key tiles from last to first. Scores of tile n and output of tile n + 1 are on the
// tensor cores together, while the softmax of a tile runs beside the output products of the tile
// before it.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"
#include "attention/cuda/forward/shared.cuh"
#include "attention/cuda/ptx/fence.cuh"
#include "attention/cuda/ptx/mbarrier.cuh"
#include "attention/cuda/ptx/mma.cuh"
#include "attention/cuda/ptx/wgmma.cuh"
#include "attention/cuda/tile/fragment.h"
#include "attention/cuda/tile/softmax_tile.cuh"
#include "attention/cuda/tile/swizzle.h"

namespace attn::cuda {

// Hardware barriers: all consumers, and each warpgroup for itself.
inline constexpr int kAllConsumersBarrier = 1;
inline constexpr int kFirstWarpgroupBarrier = 2;

// Where a walk stands among the key tiles of its task.
struct Tiles {
  int32_t current;
  int32_t first, first_full, last_full;  // see ForwardTask
  float slack;                           // kSlackLog2 in units of scores
};

template <ForwardConfig kConfig>
struct ForwardConsumer {
  static_assert(kConfig.head_dim == 128 && kConfig.tile_q == 128 && kConfig.tile_kv == 128,
                "the products are written for 64 x 128 x 16");
  using Shared = ForwardShared<kConfig>;
  static constexpr int kDepthSteps = kConfig.head_dim / 16;
  static constexpr int kKeySteps = kConfig.tile_kv / 16;

  const ForwardArgs& args;
  Shared& shared;
  const int warpgroup;
  const int warp;  // within the warpgroup
  const bool is_first_lane;
  RingPlace<Shared::kTaskSlots> read;
  RingPlace<kConfig.stages> keys, values;
  uint32_t query_parity = 0;

  // Packed row of the work tile that the lane's row slot stands for.
  __device__ __forceinline__ int RowOf(int lane, int slot) const {
    return 64 * warpgroup + 16 * warp + lane / 4 + 8 * slot;
  }
  __device__ __forceinline__ void ArriveOncePerWarp(ptx::Barrier* barrier) const {
    if (is_first_lane) ptx::Arrive(barrier);
  }

  // scores = queries * keys^T, started.
  __device__ __forceinline__ void StartScores(float (&scores)[kAccumulators]) const {
    const uint32_t query_smem = ptx::SharedAddress(shared.query) + warpgroup * 64 * 128;
    const uint64_t query = ptx::MatrixDescriptor(query_smem, 0, kSwizzleBlockBytes);
    const uint64_t key =
        ptx::MatrixDescriptor(ptx::SharedAddress(shared.keys[keys.slot]), 0, kRowGroupBytes);
    ptx::FenceOperands();
#pragma unroll
    for (int step = 0; step < kDepthSteps; ++step) {
      const int half = step / 4;
      const int within = step % 4 * 32;
      ptx::MultiplyM64N128K16(scores, ptx::Advanced(query, half * Shared::kQueryBytes / 2 + within),
                              ptx::Advanced(key, half * kSwizzleBlockBytes + within), step > 0);
    }
    ptx::CommitProducts();
  }

  // output += weights * values, started.
  __device__ __forceinline__ void StartOutput(float (&output)[kAccumulators],
                                              const uint32_t (&weights)[kAccumulators / 2]) const {
    const uint64_t value = ptx::MatrixDescriptor(ptx::SharedAddress(shared.values[values.slot]),
                                                 kSwizzleBlockBytes, kRowGroupBytes);
    ptx::FenceOperands();
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      ptx::MultiplyM64N128K16(output, &weights[4 * step],
                              ptx::Advanced(value, step * 2 * kRowGroupBytes), true);
    }
    ptx::CommitProducts();
  }

  __device__ __forceinline__ void WaitForKeys() {
    ptx::WaitForPhase(&shared.key_full[keys.slot], keys.parity);
    if constexpr (kConfig.load == KvLoad::kGather) ptx::FenceProxyAsync();
  }
  __device__ __forceinline__ void WaitForValues() {
    ptx::WaitForPhase(&shared.value_full[values.slot], values.parity);
    if constexpr (kConfig.load == KvLoad::kGather) ptx::FenceProxyAsync();
  }
  __device__ __forceinline__ void ReleaseKeys() {
    ArriveOncePerWarp(&shared.key_empty[keys.slot]);
    keys.Advance();
  }
  // The queries are not needed beyond the products of the first key tile, which come last.
  __device__ __forceinline__ void ReleaseQueriesIf(bool is_last_use) const {
    if (is_first_lane && is_last_use) ptx::Arrive(&shared.query_empty);
  }

  template <bool kIsLinear>
  __device__ __forceinline__ void CapScores(float (&scores)[kAccumulators]) const {
    if constexpr (!kIsLinear) {
#pragma unroll
      for (int i = 0; i < kAccumulators; ++i) {
        scores[i] = CappedScore(args.score.op, scores[i]);
      }
    }
  }

  __device__ __forceinline__ ColumnBounds BoundsOf(const ForwardTask& task) const {
    const int lane = ptx::LaneId();
    ColumnBounds bounds;
#pragma unroll
    for (int slot = 0; slot < kRowsPerThread; ++slot) {
      const int query = args.rows.QueryOf(RowOf(lane, slot));
      const score::Interval seen = task.range.KeysOf(task.first_position + query);
      bounds.begin[slot] = static_cast<int32_t>(seen.begin) - 2 * (lane % 4);
      bounds.end[slot] = static_cast<int32_t>(seen.end) - 2 * (lane % 4);
    }
    return bounds;
  }

  // Slots at and beyond the end of the keys may hold NaN, and a weight of 0 does not stop it.
  // Synchronises all consumers.
  __device__ __forceinline__ void ClearValuesFrom(int32_t first_row) {
    uint8_t* tile = shared.values[values.slot];
    const int consumer_thread = 128 * warpgroup + 32 * warp + ptx::LaneId();
    for (int i = first_row * kChunksPerRow + consumer_thread; i < kConfig.tile_kv * kChunksPerRow;
         i += 128 * kForwardConsumers) {
      const int offset = GroupedTileOffset(i / kChunksPerRow, i % kChunksPerRow);
      *reinterpret_cast<uint4*>(tile + offset) = uint4{0, 0, 0, 0};
    }
    ptx::FenceProxyAsync();
    ptx::SyncNamed(kAllConsumersBarrier, 128 * kForwardConsumers);
  }

  // For scales of zero or below: the factor of the queries is -1 or 0. Synchronises the warpgroup.
  __device__ __forceinline__ void ApplyQueryFactor() {
    const uint32_t keep = args.score.query_factor == 0.0f ? 0u : ~0u;
    const uint32_t flip = args.score.query_factor < 0.0f ? 0x80008000u : 0u;
    for (int i = 32 * warp + ptx::LaneId(); i < 64 * kChunksPerRow; i += 128) {
      const int offset =
          HalvedTileOffset(kConfig.tile_q, 64 * warpgroup + i / kChunksPerRow, i % kChunksPerRow);
      uint4& q = *reinterpret_cast<uint4*>(shared.query + offset);
      q = {(q.x & keep) ^ flip, (q.y & keep) ^ flip, (q.z & keep) ^ flip, (q.w & keep) ^ flip};
    }
    ptx::FenceProxyAsync();
    ptx::SyncNamed(kFirstWarpgroupBarrier + warpgroup, 128);
  }

  // One key tile: its scores beside the output of the tile before it, then its softmax, then the
  // waits of the next step: nothing stands between the end of the softmax and the next products,
  // and ptxas, which moves a wait for products up to the last jump, cannot move it ahead of the
  // exponentials.
  //
  // REQUIRES: the tile's keys and the values of the tile before it are there.
  template <bool kIsLinear, bool kIsMasked>
  __device__ __forceinline__ void Step(float (&scores)[kAccumulators],
                                       float (&output)[kAccumulators],
                                       uint32_t (&weights)[kAccumulators / 2], SoftmaxRows& rows,
                                       const ColumnBounds& bounds, const Tiles& tiles) {
    const bool is_last = tiles.current == tiles.first;
    ptx::Pin(scores);
    StartScores(scores);
    ptx::Pin(output);
    ptx::Pin(weights);
    StartOutput(output, weights);
    ptx::Barrier* const values_empty = &shared.value_empty[values.slot];
    values.Advance();
    ptx::WaitForProducts<1>();
    ptx::Pin(scores);
    ReleaseKeys();
    ReleaseQueriesIf(is_last);
    CapScores<kIsLinear>(scores);
    if constexpr (kIsMasked) MaskScores(scores, bounds, tiles.current * kConfig.tile_kv);
    float rescale[kRowsPerThread];
    const bool moves = rows.IsExceeded(scores);
    if (__builtin_expect(moves, false)) {
      rows.Move(scores, args.score.log2_scale, tiles.slack, rescale);
    }
    rows.Weigh(scores, args.score.log2_scale);
    WaitForValues();
    if (!is_last) WaitForKeys();
    ptx::WaitForProducts<0>();
    ptx::Pin(output);
    ptx::Pin(weights);
    ArriveOncePerWarp(values_empty);
    if (__builtin_expect(moves, false)) {
#pragma unroll
      for (int i = 0; i < kAccumulators; ++i) output[i] *= rescale[RowSlotOf(i)];
    }
    PackWeights(scores, weights);
  }

  // The last key tile: there is no output yet, so its softmax stands alone. Ends as a step does.
  template <bool kIsLinear>
  __device__ __forceinline__ ColumnBounds BeginWalk(const ForwardTask& task,
                                                    float (&scores)[kAccumulators],
                                                    uint32_t (&weights)[kAccumulators / 2],
                                                    SoftmaxRows& rows, const Tiles& tiles) {
    const bool is_last = tiles.current == tiles.first;
    const bool is_masked = tiles.current >= tiles.last_full || tiles.current < tiles.first_full;
    const int32_t valid_rows = task.kv_end - tiles.current * kConfig.tile_kv;
    ptx::WaitForPhase(&shared.query_full, query_parity);
    query_parity ^= 1;
    if (args.score.query_factor != 1.0f) ApplyQueryFactor();
    WaitForKeys();
    ptx::Pin(scores);
    StartScores(scores);
    const ColumnBounds bounds = BoundsOf(task);
    ptx::WaitForProducts<0>();
    ptx::Pin(scores);
    ReleaseKeys();
    ReleaseQueriesIf(is_last);
    CapScores<kIsLinear>(scores);
    if (is_masked) MaskScores(scores, bounds, tiles.current * kConfig.tile_kv);
    float rescale[kRowsPerThread];
    rows.Move(scores, args.score.log2_scale, tiles.slack, rescale);
    rows.Weigh(scores, args.score.log2_scale);
    PackWeights(scores, weights);
    WaitForValues();
    if constexpr (kConfig.load == KvLoad::kBoxes) {
      if (valid_rows < kConfig.tile_kv) ClearValuesFrom(valid_rows);
    }
    if (!is_last) WaitForKeys();
    return bounds;
  }

  // The whole walk. Three loops over one step, since a test inside the step would cost up to five
  // points of tensor-busy time.
  template <bool kIsLinear>
  __device__ __forceinline__ void Walk(const ForwardTask& task, float (&output)[kAccumulators],
                                       float (&factor)[kRowsPerThread]) {
    SoftmaxRows rows;
    Tiles tiles{task.last - 1, task.first, task.first_full, task.last_full,
                kSlackLog2 / args.score.log2_scale};
    float scores[kAccumulators];
    uint32_t weights[kAccumulators / 2];
    const ColumnBounds bounds = BeginWalk<kIsLinear>(task, scores, weights, rows, tiles);
    for (--tiles.current; tiles.current >= tiles.last_full; --tiles.current) {
      Step<kIsLinear, true>(scores, output, weights, rows, bounds, tiles);
    }
    for (; tiles.current >= tiles.first_full; --tiles.current) {
      Step<kIsLinear, false>(scores, output, weights, rows, bounds, tiles);
    }
    for (; tiles.current >= tiles.first; --tiles.current) {
      Step<kIsLinear, true>(scores, output, weights, rows, bounds, tiles);
    }
    ptx::Pin(output);
    ptx::Pin(weights);
    StartOutput(output, weights);
    FinishRows(task, rows, factor);  // beside the last products
    ptx::WaitForProducts<0>();
    ptx::Pin(output);
    ArriveOncePerWarp(&shared.value_empty[values.slot]);
    values.Advance();
  }

  // What the rows must be multiplied by, and their LSE, which is written. Fields of the task are
  // read once: the compiler would read them again after every store.
  __device__ __forceinline__ void FinishRows(const ForwardTask& task, const SoftmaxRows& rows,
                                             float (&factor)[kRowsPerThread]) const {
    const int lane = ptx::LaneId();
    const float* const sinks = task.sinks;
    float* const lse = task.lse;
    const int num_queries = task.num_queries;
#pragma unroll
    for (int slot = 0; slot < kRowsPerThread; ++slot) {
      const int row = RowOf(lane, slot);
      const int query = args.rows.QueryOf(row);
      const int head = row - query * args.rows.group_size;
      const float sum = QuadSum(rows.sum[slot]);
      score::Finished finished = FinishWithoutSinks(rows.max[slot], sum, args.score.natural_scale);
      if (__builtin_expect(sinks != nullptr, false)) {
        finished = score::Finish(rows.max[slot], sum, args.score.natural_scale,
                                 sinks + head * args.score.num_sinks, args.score.num_sinks);
      }
      factor[slot] = finished.factor;
      if (lse != nullptr && lane % 4 == 0 && query < num_queries) {
        lse[query * args.num_q_heads + head] = finished.lse;
      }
    }
  }

  // Within a work tile offsets fit 32 bits: at most 128 rows of queries, see MakeForwardArgs.
  //
  // Each quad writes 32 bytes of a row at a time.
  __device__ __forceinline__ void WriteFloats(const ForwardTask& task,
                                              const float (&output)[kAccumulators]) const {
    const int lane = ptx::LaneId();
#pragma unroll
    for (int slot = 0; slot < kRowsPerThread; ++slot) {
      const int row_of_tile = RowOf(lane, slot);
      const int query = args.rows.QueryOf(row_of_tile);
      const int head = row_of_tile - query * args.rows.group_size;
      if (query >= task.num_queries) continue;
      float* row = static_cast<float*>(task.out) +
                   (query * args.num_q_heads + head) * kConfig.head_dim + 2 * (lane % 4);
#pragma unroll
      for (int i = 2 * slot; i < kAccumulators; i += 4) {
        *reinterpret_cast<float2*>(row + i / 4 * 8) = float2{output[i], output[i + 1]};
      }
    }
  }

  // Through the warp's own 16 rows of staging memory, so that half a warp writes a whole row.
  __device__ __forceinline__ void WriteRounded(const ForwardTask& task,
                                               const float (&output)[kAccumulators]) {
    const int lane = ptx::LaneId();
    uint8_t* staging = shared.staging + (4 * warpgroup + warp) * 16 * kKvRowBytes;
    const uint32_t staging_smem = ptx::SharedAddress(staging);
    const int matrix_row = lane % 8 + 8 * (lane / 8 % 2);
    const int matrix_chunk = lane / 16;
#pragma unroll
    for (int chunk = 0; chunk < kChunksPerRow; chunk += 2) {
      const float* pair = &output[4 * chunk];
      ptx::StoreMatrices(staging_smem + StagedRowOffset(matrix_row, chunk + matrix_chunk),
                         ptx::PackBf16(pair[0], pair[1]), ptx::PackBf16(pair[2], pair[3]),
                         ptx::PackBf16(pair[4], pair[5]), ptx::PackBf16(pair[6], pair[7]));
    }
    __syncwarp();
    const int chunk = lane % kChunksPerRow;
    uint4 pieces[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int staged_row = 2 * i + lane / kChunksPerRow;
      pieces[i] = *reinterpret_cast<const uint4*>(staging + StagedRowOffset(staged_row, chunk));
    }
    uint8_t* const out = static_cast<uint8_t*>(task.out) + chunk * kChunkBytes;
    const int num_queries = task.num_queries;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = 64 * warpgroup + 16 * warp + 2 * i + lane / kChunksPerRow;
      const int query = args.rows.QueryOf(row);
      const int head = row - query * args.rows.group_size;
      if (query < num_queries) {
        *reinterpret_cast<uint4*>(out + (query * args.num_q_heads + head) * kKvRowBytes) =
            pieces[i];
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void Run() {
    while (true) {
      const ForwardTask& task = shared.tasks[read.slot];
      ptx::WaitForPhase(&shared.task_full[read.slot], read.parity);
      if (task.is_end) return;
      float output[kAccumulators] = {};
      float factor[kRowsPerThread];
      if (!task.sees_keys()) {
        FinishRows(task, SoftmaxRows(), factor);
      } else if (args.score.op.IsLinear()) {
        Walk<true>(task, output, factor);
      } else {
        Walk<false>(task, output, factor);
      }
#pragma unroll
      for (int i = 0; i < kAccumulators; ++i) output[i] *= factor[RowSlotOf(i)];
      if (task.writes_fp32) {
        WriteFloats(task, output);
      } else {
        WriteRounded(task, output);
      }
      ArriveOncePerWarp(&shared.task_empty[read.slot]);
      read.Advance();
    }
  }
};

}  // namespace attn::cuda
