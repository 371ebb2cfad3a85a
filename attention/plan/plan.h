// What the workers of a launch will do: a list of independent tasks, longest first. Pure; how work
// is cut here never changes a bit of a result.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan/work_split.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn::plan {

inline constexpr int32_t kNoSplit = -1;

struct Task {
  uint32_t entry = 0;  // index into Batch::rows
  uint32_t kv_head_begin = 0;
  uint32_t kv_head_end = 0;
  RowClass row_class = RowClass::kDecode;
  int32_t split = kNoSplit;  // of a decode task: index into Plan::splits()
  // Prefill: packed rows (position x query head of the group). Decode: leaves.
  int64_t begin = 0;
  int64_t end = 0;
  float nanos = 0;  // estimate
};

// One KV head of a decode entry whose leaves are spread over several tasks; each leaves a partial
// per run, and whoever ends last merges them.
struct Split {
  uint32_t entry = 0;
  uint32_t kv_head = 0;
  RunSplit runs;
  int64_t first_partial = 0;  // in floats
};

struct Limits {
  int num_threads = 1;
  int32_t max_prefill_rows = 1;  // packed rows of a task
};

class Plan {
 public:
  // Rebuilds the plan, reusing its memory. Entries without rows or heads get no task.
  void Build(const AttentionSpec& spec, const std::vector<AttendEntry>& entries,
             const Limits& limits);

  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Split>& splits() const { return splits_; }
  int64_t partial_floats() const { return partial_floats_; }
  // Estimated time of all tasks on one thread.
  double total_nanos() const { return total_nanos_; }

 private:
  void AddPrefill(const AttendEntry& entry, uint32_t index);
  void AddDecode(const AttendEntry& entry, uint32_t index);
  void AddSplitHead(const AttendEntry& entry, uint32_t index, uint32_t kv_head,
                    score::Interval leaves, float leaf_nanos);
  void Order();
  float NanosOf(int64_t rows, int64_t keys) const;

  const AttentionSpec* spec_ = nullptr;
  Limits limits_;
  double total_nanos_ = 0;
  double task_nanos_ = 0;  // aimed at
  int64_t partial_floats_ = 0;
  std::vector<Task> tasks_;
  std::vector<Task> unordered_;
  std::vector<Split> splits_;
};

}  // namespace attn::plan
