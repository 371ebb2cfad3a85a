// Prefill: a block of packed rows walks the key tiles it sees, in order.
#include "attention/cpu/attend.h"
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/attend_prefill.cc"
#include "hwy/foreach_target.h"
// After foreach_target:
#include "attention/cpu/attend_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// 16-bit tiles are made float once per task: at kMaxRows rows that costs a few percent, less than
// converting at every load.
void AttendPrefillRows(const HeadWork& work, int32_t row_begin, int32_t row_end, Scratch& scratch) {
  static constexpr TileKernels kKernels = MakeKernels<FloatBlocks, kPrefillRowsPerBlock>();
  const bool as_float = !work.layout->is_blocked || work.spec->kv_dtype != DType::kFloat32;
  const size_t rows = static_cast<size_t>(row_end - row_begin);
  const score::Interval keys = LoadRows(work, row_begin, row_end, kKernels.rows, scratch);
  const RowState state = {scratch.max, scratch.sum, scratch.out, kRowStride};
  TileSource source(work, as_float, scratch.tile);
  TileAttention tiles(work, kKernels, rows, source, scratch);
  ResetRows(state, tiles.padded_rows(), work.spec->head_dim_v);
  for (int64_t begin = keys.begin; begin < keys.end;) {
    const int64_t end = std::min(keys.end, (begin / kTileKeys + 1) * kTileKeys);
    tiles.Add(begin, end, state);
    begin = end;
  }
  FinishRows(work, row_begin, row_end, state);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

HWY_EXPORT(AttendPrefillRows);

void AttendPrefill(const HeadWork& work, int32_t row_begin, int32_t row_end, Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(AttendPrefillRows)(work, row_begin, row_end, scratch);
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
