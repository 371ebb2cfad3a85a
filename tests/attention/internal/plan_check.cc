#include "tests/attention/internal/plan_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/score/lower.h"

namespace attn::plan {
namespace {

using score::Interval;
using EntryHead = std::pair<uint32_t, uint32_t>;

// What the tasks of an entry's head must cover: packed rows of prefill, leaves of decode. Rows that
// see nothing are still written, by a task without leaves.
Interval UnitsOf(const AttentionSpec& spec, const AttendEntry& entry) {
  const int64_t rows = int64_t{entry.q_len} * spec.group_size();
  if (entry.row_class == RowClass::kPrefill) return {0, rows};
  return LeavesOf(
      score::RangeOf(spec, entry).KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1));
}

std::string FaultOfTask(const Task& task, const std::vector<AttendEntry>& entries,
                        const Limits& limits) {
  if (task.entry >= entries.size()) return "of no entry";
  const AttendEntry& entry = entries[task.entry];
  if (task.row_class != entry.row_class) return "of another class than its entry";
  if (task.kv_head_begin >= task.kv_head_end) return "without heads";
  if (!(task.nanos >= 0)) return "with a negative estimate";
  const bool prefill = task.row_class == RowClass::kPrefill;
  if (prefill && task.end - task.begin > limits.max_prefill_rows) return "with too many rows";
  if (prefill && task.split != kNoSplit) return "of prefill that is split";
  return "";
}

std::string FaultOfCover(std::vector<Interval> parts, Interval whole) {
  if (parts.empty()) return "no task";
  if (whole.empty()) return parts.size() == 1 && parts[0].empty() ? "" : "more than one task";
  std::sort(parts.begin(), parts.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t next = whole.begin;
  for (const Interval& part : parts) {
    if (part.begin != next || part.end <= part.begin) {
      return absl::StrCat("a part [", part.begin, ", ", part.end, ") where ", next, " is next");
    }
    next = part.end;
  }
  return next == whole.end ? "" : absl::StrCat("an end at ", next, ", not at ", whole.end);
}

std::string FaultOfTasks(const Plan& plan, const AttentionSpec& spec,
                         const std::vector<AttendEntry>& entries, const Limits& limits) {
  std::map<EntryHead, std::vector<Interval>> parts;
  for (const Task& task : plan.tasks()) {
    const std::string fault = FaultOfTask(task, entries, limits);
    if (!fault.empty()) return absl::StrCat("entry ", task.entry, " has a task ", fault);
    for (uint32_t head = task.kv_head_begin; head < task.kv_head_end; ++head) {
      parts[{task.entry, head}].push_back({task.begin, task.end});
    }
  }
  for (uint32_t e = 0; e < entries.size(); ++e) {
    if (entries[e].q_len == 0) continue;
    for (uint32_t head = entries[e].kv_head_begin; head < entries[e].kv_head_end; ++head) {
      const auto found = parts.extract({e, head});
      const std::string fault =
          found.empty() ? "no task" : FaultOfCover(found.mapped(), UnitsOf(spec, entries[e]));
      if (!fault.empty()) return absl::StrCat("entry ", e, " head ", head, " has ", fault);
    }
  }
  return parts.empty() ? "" : "tasks of rows or heads that no entry has";
}

// Each run of a split has one task and partials of its own.
std::string FaultOfSplits(const Plan& plan, const AttentionSpec& spec,
                          const std::vector<AttendEntry>& entries) {
  std::vector<std::vector<int64_t>> runs(plan.splits().size());
  for (const Task& task : plan.tasks()) {
    if (task.split == kNoSplit) continue;
    const auto index = static_cast<size_t>(task.split);
    if (index >= runs.size()) return "a task of no split";
    const Split& split = plan.splits()[index];
    const int64_t run = task.begin >> split.runs.log2_leaves;
    if (split.entry != task.entry || split.kv_head != task.kv_head_begin) return "a foreign task";
    if (run != (task.end - 1) >> split.runs.log2_leaves) return "a task across runs";
    runs[index].push_back(run - split.runs.first_run);
  }
  const int64_t row_floats = 2 + DivideUp(spec.head_dim_v, 16) * 16;
  int64_t next_partial = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Split& split = plan.splits()[i];
    std::sort(runs[i].begin(), runs[i].end());
    for (size_t run = 0; run < runs[i].size(); ++run) {
      if (runs[i][run] != static_cast<int64_t>(run)) return "a run that is missing or done twice";
    }
    if (static_cast<int64_t>(runs[i].size()) != split.runs.num_runs) return "another run count";
    if (split.first_partial != next_partial) return "partials with a gap or an overlap";
    next_partial +=
        split.runs.num_runs * entries[split.entry].q_len * spec.group_size() * row_floats;
  }
  return next_partial == plan.partial_floats() ? "" : "a workspace of another size";
}

}  // namespace

std::string FaultOf(const Plan& plan, const AttentionSpec& spec,
                    const std::vector<AttendEntry>& entries, const Limits& limits) {
  std::string fault = FaultOfTasks(plan, spec, entries, limits);
  if (!fault.empty()) return fault;
  fault = FaultOfSplits(plan, spec, entries);
  return fault.empty() ? "" : "the splits have " + fault;
}

}  // namespace attn::plan
