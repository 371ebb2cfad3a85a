// Which keys a row may see, as interval arithmetic: causality, window and length all reduce to
// "the row at position p sees keys [max(0, p - left), min(kv_end, p + right + 1))".
#pragma once

#include <cstdint>

#include "attn/base/hd.h"

namespace attn::score {

// Beyond every position and every difference of positions, and far from overflow.
inline constexpr int64_t kUnbounded = int64_t{1} << 60;

// [begin, end), empty if begin >= end.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  ATTN_HD constexpr bool empty() const { return begin >= end; }
  ATTN_HD constexpr int64_t size() const { return empty() ? 0 : end - begin; }
};

ATTN_HD constexpr int64_t Clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

ATTN_HD constexpr Interval Intersect(Interval a, Interval b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

// Tiles [first, last) hold keys that some row of a block sees; in tiles [first_full, last_full),
// which lie inside, every row sees every key.
struct TileRange {
  int64_t first = 0;
  int64_t first_full = 0;
  int64_t last_full = 0;
  int64_t last = 0;
};

struct VisibleRange {
  int64_t left = kUnbounded;   // >= 0
  int64_t right = kUnbounded;  // >= 0; 0 if causal
  int64_t kv_end = 0;

  ATTN_HD constexpr Interval KeysOf(int64_t position) const {
    return {Clamp(position - left, 0, kv_end), Clamp(position + right + 1, 0, kv_end)};
  }

  // All keys that a row at first_position .. last_position sees: neighbours overlap or touch.
  ATTN_HD constexpr Interval KeysOfRows(int64_t first_position, int64_t last_position) const {
    return {KeysOf(first_position).begin, KeysOf(last_position).end};
  }

  // Positions whose rows see `key`; empty for a key at or beyond kv_end.
  ATTN_HD constexpr Interval QueriesOf(int64_t key) const {
    if (key < 0 || key >= kv_end) return {0, 0};
    return {key - right, key + left + 1};
  }

  // REQUIRES: first_position <= last_position, tile > 0.
  ATTN_HD constexpr TileRange TilesOf(int64_t first_position, int64_t last_position,
                                      int64_t tile) const {
    const Interval any = KeysOfRows(first_position, last_position);
    if (any.empty()) return {};
    const Interval all = {KeysOf(last_position).begin, KeysOf(first_position).end};
    TileRange tiles;
    tiles.first = any.begin / tile;
    tiles.last = (any.end + tile - 1) / tile;
    tiles.first_full = Clamp((all.begin + tile - 1) / tile, tiles.first, tiles.last);
    tiles.last_full = Clamp(all.end / tile, tiles.first_full, tiles.last);
    return tiles;
  }

  // Number of visible (row, key) pairs of the rows at positions [begin, begin + count).
  ATTN_HD constexpr int64_t PairsOf(int64_t begin, int64_t count) const {
    return SumOfClamped(begin + right + 1, count) - SumOfClamped(begin - left, count);
  }

 private:
  // Sum of Clamp(x, 0, kv_end) for x in [start, start + count).
  ATTN_HD constexpr int64_t SumOfClamped(int64_t start, int64_t count) const {
    const int64_t rising_begin = Clamp(-start, 0, count);
    const int64_t rising_end = Clamp(kv_end - start, rising_begin, count);
    const int64_t rising = rising_end - rising_begin;
    const int64_t first = start + rising_begin;
    const int64_t sum = rising == 0 ? 0 : rising * first + rising * (rising - 1) / 2;
    return sum + (count - rising_end) * kv_end;
  }
};

}  // namespace attn::score
