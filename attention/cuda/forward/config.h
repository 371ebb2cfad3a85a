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
// Task slots: the work tile that is computed, and one that is loaded. Threads that gather drift
// apart further than the copy engine's single warp. More would only let a CTA hold tiles that
// others could begin.
constexpr int TaskSlotsOf(KvLoad load) { return load == KvLoad::kBoxes ? 2 : 4; }

}  // namespace attn::cuda
