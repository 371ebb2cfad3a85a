// Cutting by cost at absolute positions, so that where the cuts fall never changes a bit.
#include "server/core/prefill_cut.h"

#include <algorithm>

namespace attn::server {
namespace {

// Rows of `work` before the first cut behind `row`.
uint32_t EndOfBlock(const AttendWork& work, uint32_t row, int64_t cut_rows) {
  const int64_t position = work.q_start + row;
  const int64_t past = ((position % cut_rows) + cut_rows) % cut_rows;
  const int64_t end = row + (cut_rows - past);
  return static_cast<uint32_t>(std::min<int64_t>(end, work.item->q_len));
}

DueChunk Chunk(AttendWork& work, const CostModel& costs, uint32_t row_end, uint32_t kv_head_end) {
  DueChunk chunk;
  chunk.work = &work;
  chunk.row_begin = work.next_row;
  chunk.row_end = row_end;
  chunk.kv_head_begin = work.next_kv_head;
  chunk.kv_head_end = kv_head_end;
  chunk.units = costs.UnitsOf(work.store->spec, ShapeOf(work, chunk));
  return chunk;
}

// Some heads of one block of rows.
std::optional<DueChunk> HeadsOfBlock(AttendWork& work, const CostModel& costs, uint32_t row_end,
                                     double units, bool at_least_one) {
  const uint32_t heads_left = work.store->spec.num_kv_heads - work.next_kv_head;
  const DueChunk one = Chunk(work, costs, row_end, work.next_kv_head + 1);
  const double fitting = one.units > 0 ? units / one.units : heads_left;
  auto heads = static_cast<uint32_t>(std::clamp<double>(fitting, 0, heads_left));
  if (heads == 0 && !at_least_one) return std::nullopt;
  heads = std::max(heads, 1u);
  return heads == 1 ? one : Chunk(work, costs, row_end, work.next_kv_head + heads);
}

// As many whole blocks as fit; `first` is the first of them and fits.
DueChunk Blocks(AttendWork& work, const CostModel& costs, const DueChunk& first, double units) {
  const auto cut_rows = static_cast<uint32_t>(costs.cut_rows());
  const uint32_t rows_behind = work.item->q_len - first.row_end;
  // Between: blocks behind the first, of which the last may be short.
  uint32_t low = 0;
  uint32_t high = (rows_behind + cut_rows - 1) / cut_rows;
  DueChunk best = first;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    const auto row_end = static_cast<uint32_t>(std::min<uint64_t>(
        uint64_t{first.row_end} + uint64_t{middle} * cut_rows, work.item->q_len));
    const DueChunk chunk = Chunk(work, costs, row_end, work.store->spec.num_kv_heads);
    if (chunk.units <= units) {
      best = chunk;
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

}  // namespace

uint32_t NextKeyEnd(const AttendWork& work, const CostModel& costs, double units,
                    bool at_least_one) {
  const AttendItem& item = *work.item;
  const uint32_t keys_left = item.kv_new_len - work.next_key;
  const double fitting = work.key_units > 0 ? units / work.key_units : keys_left;
  if (fitting >= keys_left) return item.kv_new_len;
  const auto cut = static_cast<uint64_t>(costs.cut_rows());
  const uint64_t begin = uint64_t{item.expected_len} + work.next_key;
  uint64_t end = (begin + static_cast<uint64_t>(std::max(fitting, 0.0))) / cut * cut;
  if (end <= begin) {
    if (!at_least_one) return work.next_key;
    end = (begin / cut + 1) * cut;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(end - item.expected_len, item.kv_new_len));
}

std::optional<DueChunk> NextChunk(AttendWork& work, const CostModel& costs, double units,
                                  bool at_least_one) {
  const uint32_t num_kv_heads = work.store->spec.num_kv_heads;
  if (ClassOf(work.item->q_len) == RowClass::kDecode) {
    const DueChunk whole = Chunk(work, costs, work.item->q_len, num_kv_heads);
    if (whole.units > units && !at_least_one) return std::nullopt;
    return whole;
  }
  const uint32_t row_end = EndOfBlock(work, work.next_row, costs.cut_rows());
  const DueChunk block = Chunk(work, costs, row_end, num_kv_heads);
  // A block that was begun is finished before the next one starts.
  if (work.next_kv_head > 0 || block.units > units) {
    return HeadsOfBlock(work, costs, row_end, units, at_least_one);
  }
  return Blocks(work, costs, block, units);
}

}  // namespace attn::server
