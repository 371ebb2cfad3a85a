// The work lists of a decode launch. Pure, on the host. The plan decides how long extents are; no
// bit of a result depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/cuda/decode/args.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"

namespace attn::cuda {

struct DecodePlan {
  std::vector<DecodeItem> items;
  std::vector<CombineItem> combines;
  int32_t num_partials = 0;
  int32_t rows_per_block = 8;
  int32_t extent_log2 = 0;  // leaves of an extent
};

// Extents as short as lets the launch still fit on the device twice over, at most 8 leaves. Fills
// `plan`, whose memory is kept from call to call.
// REQUIRES: the lengths of the entries are upper bounds of those the kernels will read.
void PlanDecode(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                absl::Span<const EntryRecord> entries, int num_sms, DecodePlan* plan);

// The same with extents of 2^extent_log2 leaves.
void PlanDecodeWithExtent(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                          absl::Span<const EntryRecord> entries, int extent_log2, DecodePlan* plan);

// Fresh plans, for those who need one only once.
inline DecodePlan PlanDecode(const KvPool& pool, const LaunchScore& score, int num_q_heads,
                             absl::Span<const EntryRecord> entries, int num_sms) {
  DecodePlan plan;
  PlanDecode(pool, score, num_q_heads, entries, num_sms, &plan);
  return plan;
}
inline DecodePlan PlanDecodeWithExtent(const KvPool& pool, const LaunchScore& score,
                                       int num_q_heads, absl::Span<const EntryRecord> entries,
                                       int extent_log2) {
  DecodePlan plan;
  PlanDecodeWithExtent(pool, score, num_q_heads, entries, extent_log2, &plan);
  return plan;
}

}  // namespace attn::cuda
