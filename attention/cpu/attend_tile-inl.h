// One tile of keys against a block of packed rows, per instruction set: scores, the running softmax
// and the weighted sum of values. Prefill walks tiles in order over one state; decode gives each
// leaf a fresh one.
#include <algorithm>
#include <cmath>

#include "attention/cpu/head_work.h"
#include "attention/cpu/score_simd-inl.h"
#include "attention/cpu/scratch.h"
#include "attention/cpu/tile_kernel-inl.h"
#include "attention/cpu/tile_source-inl.h"
#include "attention/score/online_softmax.h"

#if defined(ATTN_CPU_ATTEND_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_ATTEND_TILE_INL_H_
#undef ATTN_CPU_ATTEND_TILE_INL_H_
#else
#define ATTN_CPU_ATTEND_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Where the running softmax of a block of rows lives. Rows are padded to whole kernels; the padding
// repeats the last row's keys and its results are never read.
struct RowState {
  float* max;  // [rows], in units of scores
  float* sum;  // [rows]
  float* out;  // [rows][out_stride], unnormalised
  size_t out_stride;
};

HWY_INLINE void ResetRows(const RowState& state, size_t rows, size_t head_dim_v) {
  const size_t padded = (head_dim_v + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  for (size_t r = 0; r < rows; ++r) {
    state.max[r] = score::kNoScore;
    state.sum[r] = 0.0f;
    std::fill_n(state.out + r * state.out_stride, padded, 0.0f);
  }
}

using DotFn = void (*)(const float*, size_t, const void* const*, float*, float*);
using AccumulateFn = void (*)(const float*, const void* const*, size_t, size_t, size_t, size_t,
                              const float*, float*, size_t);

// The micro-kernels for one way of reading K and V and one number of rows, by number of blocks or
// vectors less one.
struct TileKernels {
  size_t rows;
  DotFn dot[kGroupBlocks];
  AccumulateFn accumulate[kRowVecs];
};

template <class Blocks, int kRows>
constexpr TileKernels MakeKernels() {
  TileKernels kernels{};
  kernels.rows = kRows;
  kernels.dot[0] = DotBlocks<Blocks, kRows, 1>;
  if constexpr (kGroupBlocks == 4) {
    kernels.dot[1] = DotBlocks<Blocks, kRows, 2>;
    kernels.dot[2] = DotBlocks<Blocks, kRows, 3>;
    kernels.dot[3] = DotBlocks<Blocks, kRows, 4>;
  }
  kernels.accumulate[0] = AccumulateBlocks<Blocks, kRows, 1>;
  kernels.accumulate[1] = AccumulateBlocks<Blocks, kRows, 2>;
  if constexpr (kRowVecs == 4) {
    kernels.accumulate[2] = AccumulateBlocks<Blocks, kRows, 3>;
    kernels.accumulate[3] = AccumulateBlocks<Blocks, kRows, 4>;
  }
  return kernels;
}

class TileAttention {
 public:
  // `rows` packed rows whose queries and key ranges are in scratch; REQUIRES rows <= kMaxRows.
  TileAttention(const HeadWork& work, const TileKernels& kernels, size_t rows, TileSource& source,
                Scratch& scratch)
      : work_(work), kernels_(kernels), rows_(rows), source_(source), scratch_(scratch) {}

  size_t padded_rows() const { return (rows_ + kernels_.rows - 1) / kernels_.rows * kernels_.rows; }

  // Adds keys [begin, end) of the tile at `begin`'s to the state: all keys of the tile that any of
  // the rows sees. REQUIRES: begin < end.
  void Add(int64_t begin, int64_t end, const RowState& state) {
    const FloatTag tag;
    tile_start_ = begin / kTileKeys * kTileKeys;
    begin_ = begin - tile_start_;
    end_ = end - tile_start_;
    for (size_t r = 0; r < padded_rows(); ++r) {
      hn::StoreU(hn::Set(tag, score::kNoScore), tag, scratch_.lane_max + r * kMaxLanes);
    }
    source_.LoadKeys(begin, end);
    Score();
    Weigh(state);
    source_.LoadValues(begin, end);
    Accumulate(state);
  }

 private:
  struct Span {
    int64_t begin;
    int64_t end;
  };

  // Keys that the rows of one kernel see, relative to the tile. Ranges only grow from row to row.
  Span SpanOf(size_t row) const {
    const KeyRange& first = scratch_.keys[row];
    const KeyRange& last = scratch_.keys[row + kernels_.rows - 1];
    return {std::max<int64_t>(first.begin - tile_start_, begin_),
            std::min<int64_t>(last.end - tile_start_, end_)};
  }

  // Keys outermost: a group of blocks stays in L1 while all rows pass over it.
  void Score() {
    constexpr int64_t kGroup = kGroupBlocks;
    for (int64_t group = begin_ / kBlockKeys / kGroup * kGroup; group * kBlockKeys < end_;
         group += kGroup) {
      for (size_t row = 0; row < padded_rows(); row += kernels_.rows) {
        const Span span = SpanOf(row);
        if (span.begin >= span.end) continue;
        const int64_t first = std::max(group, span.begin / kBlockKeys);
        const int64_t last = std::min(group + kGroup, (span.end + kBlockKeys - 1) / kBlockKeys);
        if (first < last) ScoreGroup(row, first, last);
      }
    }
  }

  void ScoreGroup(size_t row, int64_t first, int64_t last) {
    const KeyRange& first_row = scratch_.keys[row];
    const KeyRange& last_row = scratch_.keys[row + kernels_.rows - 1];
    // Where every row sees every key and scores are dot products the kernel's own maximum stands.
    const bool is_full = last_row.begin <= tile_start_ + first * kBlockKeys &&
                         first_row.end >= tile_start_ + last * kBlockKeys;
    const bool is_plain = is_full && work_.score.op.IsLinear();
    float* scores = scratch_.scores + row * kRowStride + first * kBlockKeys;
    kernels_.dot[last - first - 1](scratch_.query + row * kRowStride, work_.spec->head_dim_qk,
                                   source_.key_blocks() + first, scores,
                                   is_plain ? scratch_.lane_max + row * kMaxLanes : unused_max_);
    if (is_plain) return;
    for (size_t r = row; r < row + kernels_.rows; ++r) {
      FinishScores(r, first, last, scratch_.scores + r * kRowStride);
    }
  }

  // The logit of each dot product of one row in blocks [first, last), -inf where the row may not
  // see the key, and the maximum.
  void FinishScores(size_t r, int64_t first, int64_t last, float* row) {
    const FloatTag tag;
    const hn::RebindToSigned<FloatTag> integer;
    const int64_t low = Clip(scratch_.keys[r].begin);
    const int64_t high = Clip(scratch_.keys[r].end);
    const auto begin = hn::Set(integer, static_cast<int32_t>(low));
    const auto end = hn::Set(integer, static_cast<int32_t>(high));
    const FloatVec none = hn::Set(tag, score::kNoScore);
    FloatVec top = hn::LoadU(tag, scratch_.lane_max + r * kMaxLanes);
    for (int64_t i = first * kBlockKeys; i < last * kBlockKeys; i += static_cast<int64_t>(kLanes)) {
      FloatVec value = hn::LoadU(tag, row + i);
      if (!work_.score.op.IsLinear()) value = CappedScore(work_.score.op, value);
      const auto key = hn::Iota(integer, static_cast<int32_t>(i));
      const auto visible = hn::AndNot(hn::Lt(key, begin), hn::Lt(key, end));
      value = hn::IfThenElse(hn::RebindMask(tag, visible), value, none);
      hn::StoreU(value, tag, row + i);
      top = hn::Max(top, value);
    }
    hn::StoreU(top, tag, scratch_.lane_max + r * kMaxLanes);
  }

  int64_t Clip(int64_t key) const { return std::clamp<int64_t>(key - tile_start_, 0, kTileKeys); }

  // Scores become probabilities relative to the new maximum.
  void Weigh(const RowState& state) {
    const FloatTag tag;
    const FloatVec scale = hn::Set(tag, work_.score.log2_scale);
    for (size_t row = 0; row < padded_rows(); row += kernels_.rows) {
      const Span span = SpanOf(row);
      for (size_t r = row; r < row + kernels_.rows; ++r) {
        if (span.begin >= span.end) {
          scratch_.rescale[r] = 1.0f;
          continue;
        }
        const float tile_max =
            hn::GetLane(hn::MaxOfLanes(tag, hn::LoadU(tag, scratch_.lane_max + r * kMaxLanes)));
        const float old_max = state.max[r];
        const float new_max = tile_max > old_max ? tile_max : old_max;
        const FloatVec shift = hn::Set(tag, score::ShiftOf(new_max));
        const FloatVec rescale = Exp2(hn::Mul(hn::Sub(hn::Set(tag, old_max), shift), scale));
        float* scores = scratch_.scores + r * kRowStride;
        FloatVec total = hn::Zero(tag);
        const int64_t end = (span.end + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
        for (int64_t i = span.begin / kBlockKeys * kBlockKeys; i < end;
             i += static_cast<int64_t>(kLanes)) {
          const FloatVec value = hn::LoadU(tag, scores + i);
          const FloatVec weight = Exp2(hn::Mul(hn::Sub(value, shift), scale));
          hn::StoreU(weight, tag, scores + i);
          total = hn::Add(total, weight);
        }
        scratch_.rescale[r] = hn::GetLane(rescale);
        const float sum = hn::GetLane(
            hn::MulAdd(hn::Set(tag, state.sum[r]), rescale, hn::SumOfLanes(tag, total)));
        state.sum[r] = sum;
        // Maxima drop a NaN; a row of nothing else must not pass for one that met no key.
        state.max[r] = std::isnan(sum) ? sum : new_max;
      }
    }
  }

  // Again keys outermost, in halves of the tile, so that the values of a half stay in L1.
  void Accumulate(const RowState& state) {
    constexpr int64_t kStep = kTileKeys / 2;
    const size_t head_dim = work_.spec->head_dim_v;
    const size_t num_vecs = (head_dim + kLanes - 1) / kLanes;
    for (int64_t part = begin_ / kStep * kStep; part < end_; part += kStep) {
      for (size_t vec = 0; vec < num_vecs; vec += kRowVecs) {
        const AccumulateFn accumulate = kernels_.accumulate[std::min(kRowVecs, num_vecs - vec) - 1];
        for (size_t row = 0; row < padded_rows(); row += kernels_.rows) {
          const Span span = SpanOf(row);
          const int64_t begin = std::max(span.begin, part);
          const int64_t end = std::min(span.end, part + kStep);
          if (begin >= end) continue;
          const bool is_first = span.begin >= part;  // of this kernel's parts
          accumulate(scratch_.scores + row * kRowStride, source_.value_blocks(),
                     static_cast<size_t>(begin), static_cast<size_t>(end), vec * kLanes, head_dim,
                     is_first ? scratch_.rescale + row : nullptr,
                     state.out + row * state.out_stride, state.out_stride);
        }
      }
    }
  }

  const HeadWork& work_;
  const TileKernels& kernels_;
  const size_t rows_;
  TileSource& source_;
  Scratch& scratch_;
  int64_t tile_start_ = 0;
  int64_t begin_ = 0;  // of the keys at hand, relative to the tile
  int64_t end_ = 0;
  float unused_max_[kPrefillRowsPerBlock * kMaxLanes] = {};
};

// Converts the queries of packed rows [begin, end) into scratch, finds the keys they see, and pads
// to whole kernels of `kernel_rows` rows. Returns the keys that any of them sees.
HWY_INLINE score::Interval LoadRows(const HeadWork& work, int32_t begin, int32_t end,
                                    size_t kernel_rows, Scratch& scratch) {
  const AttentionSpec& spec = *work.spec;
  const FloatTag tag;
  const FloatVec factor = hn::Set(tag, work.score.query_factor);
  const int64_t row_bytes = int64_t{spec.head_dim_qk} * SizeOf(spec.activation_dtype);
  size_t r = 0;
  for (int32_t row = begin; row < end; ++row, ++r) {
    float* query = scratch.query + r * kRowStride;
    const char* from = static_cast<const char*>(work.entry->q) + work.TokenHeadOf(row) * row_bytes;
    LoadRow(spec.activation_dtype, from, spec.head_dim_qk, query);
    for (size_t d = 0; d < spec.head_dim_qk; d += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(tag, query + d), factor), tag, query + d);
    }
    const score::Interval keys = work.score.range.KeysOf(work.PositionOf(row));
    scratch.keys[r] = {static_cast<int32_t>(keys.begin), static_cast<int32_t>(keys.end)};
  }
  const KeyRange last = scratch.keys[r - 1];
  for (; r % kernel_rows != 0; ++r) {
    std::fill_n(scratch.query + r * kRowStride, kRowStride, 0.0f);
    scratch.keys[r] = last;
  }
  return work.score.range.KeysOfRows(work.PositionOf(begin), work.PositionOf(end - 1));
}

// Normalises packed rows [begin, end) and writes out and lse.
HWY_INLINE void FinishRows(const HeadWork& work, int32_t begin, int32_t end,
                           const RowState& state) {
  const AttentionSpec& spec = *work.spec;
  const AttendEntry& entry = *work.entry;
  const FloatTag tag;
  const int64_t row_bytes = int64_t{spec.head_dim_v} * SizeOf(entry.out_dtype);
  float finished[kRowStride];
  for (int32_t row = begin; row < end; ++row) {
    const size_t r = static_cast<size_t>(row - begin);
    const int64_t target = work.TokenHeadOf(row);
    const float* sinks = work.score.sinks;
    if (sinks != nullptr) {
      sinks += target % spec.num_q_heads * work.score.num_sinks;
    }
    const score::Finished end_of_row = score::Finish(
        state.max[r], state.sum[r], work.score.natural_scale, sinks, work.score.num_sinks);
    const float* values = state.out + r * state.out_stride;
    const FloatVec factor = hn::Set(tag, end_of_row.factor);
    const bool is_zero = end_of_row.factor == 0.0f;
    for (size_t d = 0; d < spec.head_dim_v; d += kLanes) {
      // Adding +0 turns a -0 of flushed sums into +0, whichever tiles they came through.
      const FloatVec value = hn::MulAdd(hn::LoadU(tag, values + d), factor, hn::Zero(tag));
      hn::StoreU(is_zero ? hn::Zero(tag) : value, tag, finished + d);
    }
    StoreRow(entry.out_dtype, finished, spec.head_dim_v,
             static_cast<char*>(entry.out) + target * row_bytes);
    if (entry.lse != nullptr) entry.lse[target] = end_of_row.lse;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_ATTEND_TILE_INL_H_
