#include "attention/plan/entry_cost.h"

#include "attention/score/lower.h"
#include "attn/base/dtype.h"

namespace attn::plan {

Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry) {
  Cost cost;
  if (entry.q_len == 0) return cost;
  const score::VisibleRange range = score::RangeOf(spec, entry);
  const double heads = entry.kv_head_end - entry.kv_head_begin;
  const double dims = spec.head_dim_qk + spec.head_dim_v;
  cost.attend_flops = 2 * dims * heads * spec.group_size() *
                      static_cast<double>(range.PairsOf(entry.q_start, entry.q_len));
  const score::Interval keys = range.KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1);
  cost.moved_bytes =
      static_cast<double>(keys.size()) * heads * dims * static_cast<double>(SizeOf(spec.kv_dtype));
  return cost;
}

}  // namespace attn::plan
