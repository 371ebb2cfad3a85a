// What one worker needs while it computes a block of rows. Made once, reused by every launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "attention/cpu/head_work.h"

namespace attn::cpu {

// Packed rows of a task at most: enough that a key tile from L3, or its conversion to float, is
// paid for by many rows; a multiple of every kernel's row count.
inline constexpr int32_t kMaxRows = 192;
// Floats between rows of the arrays below: a constant, so that row addresses are displacements, and
// no power of two, so that rows do not fall into the same cache sets.
inline constexpr size_t kRowStride = 256 + 16;
inline constexpr size_t kMaxLanes = 16;

// Visible keys of a row, absolute; empty if begin >= end.
struct KeyRange {
  int32_t begin;
  int32_t end;
};

struct UnmapFloats {
  size_t bytes = 0;
  void operator()(float* memory) const;
};
using MappedFloats = std::unique_ptr<float, UnmapFloats>;

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  float* query = nullptr;   // [kMaxRows][kRowStride], float, sign of the scale applied
  float* scores = nullptr;  // [kMaxRows][kRowStride]: scores, then probabilities of a tile
  float* out = nullptr;     // [kMaxRows][kRowStride], unnormalised
  float* tile = nullptr;    // K or V of a tile as float: [16][head_dim_qk][16] or [256][head_dim_v]
  float* lane_max = nullptr;  // [kMaxRows][kMaxLanes]
  float* max = nullptr;       // [kMaxRows]
  float* sum = nullptr;       // [kMaxRows]
  float* rescale = nullptr;   // [kMaxRows], of the tile at hand
  KeyRange* keys = nullptr;   // [kMaxRows]

  // Space for `floats` floats that keeps its content until the next call; for stacks of partials.
  float* Stack(size_t floats);

 private:
  float* Take(size_t floats);

  MappedFloats memory_;
  size_t taken_ = 0;  // floats
  MappedFloats stack_;
};

}  // namespace attn::cpu
