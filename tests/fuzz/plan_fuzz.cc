// Any batch within the limits of a request gets a plan that does everything exactly once, within
// its workspace.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/plan/entry_cost.h"
#include "attention/plan/plan.h"
#include "attn/base/check.h"
#include "tests/attention/internal/plan_check.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/fuzz_target.h"

namespace attn::fuzz {

const char kCorpusName[] = "plan";

namespace {

constexpr int64_t kMaxKeys = int64_t{1} << 30;  // Backend::max_kv_len
constexpr int64_t kMaxRows = int64_t{1} << 20;  // of a request
// More packed rows of all heads make plans that take too long to look at, not other ones.
constexpr int64_t kMaxPackedRows = int64_t{1} << 17;

AttentionSpec SpecFrom(ByteSource& input) {
  AttentionSpec spec;
  spec.num_kv_heads = static_cast<uint32_t>(input.Integer(1, 12));
  spec.num_q_heads = spec.num_kv_heads * static_cast<uint32_t>(input.Integer(1, 64));
  spec.head_dim_qk = static_cast<uint32_t>(input.Integer(1, 4096));
  spec.head_dim_v = static_cast<uint32_t>(input.Integer(1, 4096));
  if (input.Integer(0, 1) == 1) {
    spec.score.window.left = static_cast<uint32_t>(input.Integer(0, UINT32_MAX));
  }
  if (input.Integer(0, 1) == 1) {
    spec.score.window.right = static_cast<uint32_t>(input.Integer(0, UINT32_MAX));
  }
  return spec;
}

AttendEntry EntryFrom(const AttentionSpec& spec, ByteSource& input) {
  const bool is_long = input.Integer(0, 1) == 1;
  AttendEntry entry;
  entry.kv_end = static_cast<int32_t>(input.Integer(0, is_long ? kMaxKeys : 1000));
  entry.q_len = static_cast<int32_t>(input.Integer(0, is_long ? kMaxRows : 40));
  entry.q_len =
      static_cast<int32_t>(std::min<int64_t>(entry.q_len, kMaxPackedRows / spec.num_q_heads));
  entry.row_class = ClassOf(static_cast<uint32_t>(entry.q_len));
  if (entry.row_class == RowClass::kPrefill && input.Integer(0, 3) == 0) {
    entry.q_len = static_cast<int32_t>(input.Integer(1, 40));  // the rest of a cut item
  }
  // Where the rows end with the keys, or anywhere.
  entry.q_start = input.Integer(0, 1) == 1 ? int64_t{entry.kv_end} - entry.q_len
                                           : input.Integer(-kPositionLimit / 2, kPositionLimit / 2);
  entry.causal = input.Integer(0, 3) != 0;
  entry.kv_head_begin = static_cast<uint32_t>(input.Integer(0, spec.num_kv_heads));
  entry.kv_head_end = static_cast<uint32_t>(input.Integer(entry.kv_head_begin, spec.num_kv_heads));
  return entry;
}

void CheckPlan(ByteSource& input) {
  const AttentionSpec spec = SpecFrom(input);
  const plan::Limits limits{.num_threads = static_cast<int>(input.Integer(1, 64)),
                            .max_prefill_rows = static_cast<int32_t>(input.Integer(16, 192))};
  std::vector<AttendEntry> entries;
  while (!input.AtEnd() && entries.size() < 24) entries.push_back(EntryFrom(spec, input));
  plan::Plan plan;
  plan.Build(spec, entries, limits);
  const std::string fault = plan::FaultOf(plan, spec, entries, limits);
  ATTN_CHECK(fault.empty(), fault);
  for (const AttendEntry& entry : entries) {
    const Cost cost = plan::CostOf(spec, entry);
    ATTN_CHECK(cost.attend_flops >= 0 && cost.moved_bytes >= 0, "a negative cost");
  }
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attn::fuzz::ByteSource input({data, size});
  attn::fuzz::CheckPlan(input);
  return 0;
}
