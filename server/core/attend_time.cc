// Item by item, with the costs by which the batcher cuts.
#include "server/core/attend_time.h"

#include "server/core/attend_work.h"

namespace attn::server {
namespace {

AttendEntry ShapeOf(const AttendItem& item, const AttentionSpec& spec) {
  const int64_t keys = int64_t{item.expected_len} + item.kv_new_len;
  const bool append_after = (item.flags & kItemAppendAfter) != 0;
  AttendEntry entry;
  entry.q_start = item.q_start.has_value() ? int64_t{*item.q_start} : keys - item.q_len;
  entry.q_len = static_cast<int32_t>(item.q_len);
  entry.kv_end = static_cast<int32_t>(append_after ? item.expected_len : keys);
  entry.kv_head_begin = 0;
  entry.kv_head_end = spec.num_kv_heads;
  entry.row_class = ClassOf(item.q_len);
  entry.causal = (item.flags & kItemNonCausal) == 0;
  return entry;
}

bool IsRun(const AttendItem& item) {
  return item.refused.ok() && item.model != nullptr &&
         item.layer < item.model->definition.num_layers;
}

}  // namespace

CallTime TimeOf(const AttendCall& call, const CostModel& costs) {
  CallTime time;
  for (const AttendItem& item : call.items) {
    if (!IsRun(item)) continue;
    const AttentionSpec& spec = item.model->GroupOf(item.layer).spec;
    const double rows = item.q_len == 0 ? 0 : costs.UnitsOf(spec, ShapeOf(item, spec));
    const double keys = costs.AppendUnitsOf(spec, item.kv_new_len);
    if (LaneOf(item) == Lane::kDecode) {
      time.decode += costs.NanosOf(UnitKind::kDecode, rows + keys);
    } else {
      time.bulk += costs.NanosOf(UnitKind::kPrefill, rows) + costs.NanosOf(UnitKind::kAppend, keys);
    }
  }
  return time;
}

}  // namespace attn::server
