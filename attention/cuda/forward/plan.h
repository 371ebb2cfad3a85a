// The work list of a forward launch. Pure, on the host.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/forward/args.h"
#include "attention/cuda/kv_pool.h"

namespace attn::cuda {

// All work tiles of the entries, in the order in which CTAs should draw them: sections of (entry,
// KV head) pairs whose keys and values fit into a part of L2 together, and inside a section the
// tiles with most keys first, so that the last to finish are short.
std::vector<ForwardItem> PlanForward(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                                     absl::Span<const EntryRecord> entries);

}  // namespace attn::cuda
