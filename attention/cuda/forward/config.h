// What is fixed when a forward kernel is compiled.
#pragma once

#include "attn/base/dtype.h"

namespace attn::cuda {

// How pages reach shared memory: boxes by the copy engine (a page, or what a page and a tile have
// in common, must be 8 slots or more), or 16 bytes at a time by threads (any page size).
enum class KvLoad : bool { kBoxes, kGather };

struct ForwardConfig {
  DType dtype;
  int head_dim;
  KvLoad load;
  int tile_q;   // packed query rows of a work tile, 64 per consumer warpgroup
  int tile_kv;  // keys of a step
  int stages;   // key tiles, and value tiles, in shared memory; three are no faster than two
};

inline constexpr int kForwardConsumers = 2;  // warpgroups
inline constexpr int kForwardThreads = 128 * (1 + kForwardConsumers);
// A producer may be this many work tiles, less one, ahead of the slowest consumer.
inline constexpr int kForwardTaskSlots = 4;

}  // namespace attn::cuda
