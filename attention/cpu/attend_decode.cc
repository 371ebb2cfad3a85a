// Decode: the few rows of an item over leaves of 256 keys, each leaf a partial of its own, merged
// in a fixed tree.
#include "attention/cpu/attend.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/attend_decode.cc"
#include "hwy/foreach_target.h"
// After foreach_target:
#include "attention/cpu/attend_tile-inl.h"
#include "attention/cpu/merge_tree-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// With more rows than this a float copy of the tile pays; with fewer it is cheaper to convert at
// every load.
inline constexpr size_t kMaxRowsReadInPlace = 8;

// Two and three rows take the kernel of four: it waits for memory all the same.
template <class Blocks>
const TileKernels& KernelsFor(size_t rows) {
  static constexpr TileKernels kOne = MakeKernels<Blocks, 1>();
  static constexpr TileKernels kMost = MakeKernels<Blocks, kMaxDecodeRowsPerBlock>();
  return rows <= 1 ? kOne : kMost;
}

const TileKernels& ChooseKernels(const HeadWork& work, size_t rows, bool as_float) {
  static constexpr TileKernels kSix = MakeKernels<FloatBlocks, kPrefillRowsPerBlock>();
  if (as_float || work.spec->kv_dtype == DType::kFloat32) {
    return rows > kMaxRowsReadInPlace ? kSix : KernelsFor<FloatBlocks>(rows);
  }
  return work.spec->kv_dtype == DType::kBFloat16 ? KernelsFor<PairBlocks>(rows)
                                                 : KernelsFor<HalfBlocks>(rows);
}

// At most kMaxRows rows at a time, the keys read again for each such chunk.
void AttendLeaves(const HeadWork& work, int64_t leaf_begin, int64_t leaf_end, int32_t row_begin,
                  int32_t row_end, Scratch& scratch, const RowState* partial) {
  const size_t rows = static_cast<size_t>(row_end - row_begin);
  const bool as_float = !work.layout->is_blocked ||
                        (rows > kMaxRowsReadInPlace && work.spec->kv_dtype != DType::kFloat32);
  const TileKernels& kernels = ChooseKernels(work, rows, as_float);
  const score::Interval keys = LoadRows(work, row_begin, row_end, kernels.rows, scratch);
  TileSource source(work, as_float, scratch.tile);
  TileAttention tiles(work, kernels, rows, source, scratch);

  const PartialShape shape = {tiles.padded_rows(), PartialShape::Of(work).out_stride};
  float* stack =
      scratch.Stack(shape.floats() * MergeTree::DepthOf(leaf_end - leaf_begin) + kMaxLanes);
  MergeTree tree(stack, shape, work.score.log2_scale);
  for (int64_t leaf = leaf_begin; leaf < leaf_end; ++leaf) {
    const RowState state = tree.next();
    ResetRows(state, shape.rows, work.spec->head_dim_v);
    const score::Interval part = score::Intersect(keys, {leaf * kTileKeys, (leaf + 1) * kTileKeys});
    if (!part.empty()) tiles.Add(part.begin, part.end, state);
    tree.Push(leaf);
  }
  if (leaf_begin == leaf_end) {
    ResetRows(tree.next(), shape.rows, work.spec->head_dim_v);
    tree.Push(0);
  }
  const RowState root = tree.Root();
  if (partial == nullptr) {
    FinishRows(work, row_begin, row_end, root);
    return;
  }
  std::copy_n(root.max, rows, partial->max + row_begin);
  std::copy_n(root.sum, rows, partial->sum + row_begin);
  std::copy_n(root.out, rows * shape.out_stride,
              partial->out + static_cast<size_t>(row_begin) * shape.out_stride);
}

void AttendDecodeRows(const HeadWork& work, int64_t leaf_begin, int64_t leaf_end, Scratch& scratch,
                      float* partial) {
  const PartialShape shape = PartialShape::Of(work);
  const int32_t num_rows = work.num_rows();
  RowState state = {};
  if (partial != nullptr) state = StateIn(partial, shape.rows, shape.out_stride);
  for (int32_t row = 0; row < num_rows; row += kMaxRows) {
    AttendLeaves(work, leaf_begin, leaf_end, row, std::min(row + kMaxRows, num_rows), scratch,
                 partial == nullptr ? nullptr : &state);
  }
}

void MergePartials(const HeadWork& work, const float* partials, int64_t first_run, int64_t num_runs,
                   Scratch& scratch) {
  const PartialShape shape = PartialShape::Of(work);
  float* stack = scratch.Stack(shape.floats() * MergeTree::DepthOf(num_runs) + kMaxLanes);
  MergeTree tree(stack, shape, work.score.log2_scale);
  for (int64_t run = 0; run < num_runs; ++run) {
    const RowState state = tree.next();
    std::memcpy(state.max, partials + static_cast<size_t>(run) * shape.floats(),
                shape.floats() * sizeof(float));
    tree.Push(first_run + run);
  }
  FinishRows(work, 0, work.num_rows(), tree.Root());
}

const char* OwnTargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

HWY_EXPORT(AttendDecodeRows);
HWY_EXPORT(MergePartials);
HWY_EXPORT(OwnTargetName);

PartialShape PartialShape::Of(const HeadWork& work) {
  return {static_cast<size_t>(work.num_rows()),
          (work.spec->head_dim_v + kMaxLanes - 1) / kMaxLanes * kMaxLanes};
}

void AttendDecode(const HeadWork& work, int64_t leaf_begin, int64_t leaf_end, Scratch& scratch,
                  float* partial) {
  HWY_DYNAMIC_DISPATCH(AttendDecodeRows)(work, leaf_begin, leaf_end, scratch, partial);
}

void MergeRuns(const HeadWork& work, const float* partials, int64_t first_run, int64_t num_runs,
               Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(MergePartials)(work, partials, first_run, num_runs, scratch);
}

const char* TargetName() { return HWY_DYNAMIC_DISPATCH(OwnTargetName)(); }

}  // namespace attn::cpu
#endif  // HWY_ONCE
