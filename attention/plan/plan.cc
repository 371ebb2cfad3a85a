// Cutting entries into tasks and ordering them.
#include "attention/plan/plan.h"

#include <algorithm>
#include <bit>

#include "attention/score/lower.h"
#include "attn/base/dtype.h"

namespace attn::plan {
namespace {

// Rough rates of one core, good enough to balance and to decide whether threads are worth waking.
constexpr float kFlopsPerNano = 50.0f;
constexpr float kBytesPerNano = 10.0f;
// Tasks per thread that make the last one to end matter little.
constexpr int kTasksPerThread = 6;
constexpr double kLeastTaskNanos = 20e3;
// Estimates fall into one bucket per power of two.
constexpr int kBuckets = 40;

score::Interval KeysOf(const AttentionSpec& spec, const AttendEntry& entry, int64_t first_row,
                       int64_t last_row) {
  return score::RangeOf(spec, entry)
      .KeysOfRows(entry.q_start + first_row, entry.q_start + last_row);
}

int BucketOf(float nanos) {
  const uint64_t whole = static_cast<uint64_t>(std::max(nanos, 1.0f));
  return std::min(kBuckets - 1, static_cast<int>(std::bit_width(whole)));
}

}  // namespace

float Plan::NanosOf(int64_t rows, int64_t keys) const {
  const float dims = static_cast<float>(spec_->head_dim_qk + spec_->head_dim_v);
  const float flops = 2.0f * dims * static_cast<float>(rows) * static_cast<float>(keys);
  const float bytes = dims * static_cast<float>(SizeOf(spec_->kv_dtype)) * static_cast<float>(keys);
  return std::max(flops / kFlopsPerNano, bytes / kBytesPerNano);
}

void Plan::Build(const AttentionSpec& spec, const std::vector<AttendEntry>& entries,
                 const Limits& limits) {
  spec_ = &spec;
  limits_ = limits;
  total_nanos_ = 0;
  task_nanos_ = 0;
  partial_floats_ = 0;
  tasks_.clear();
  unordered_.clear();
  splits_.clear();
  if (limits.num_threads > 1) {
    for (const AttendEntry& entry : entries) {
      if (entry.q_len == 0) continue;
      const int64_t keys = KeysOf(spec, entry, 0, entry.q_len - 1).size();
      task_nanos_ += static_cast<double>(entry.kv_head_end - entry.kv_head_begin) *
                     NanosOf(int64_t{entry.q_len} * spec.group_size(), keys);
    }
    task_nanos_ = std::max(task_nanos_ / (limits.num_threads * kTasksPerThread), kLeastTaskNanos);
  }
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const AttendEntry& entry = entries[i];
    if (entry.q_len == 0 || entry.kv_head_begin >= entry.kv_head_end) continue;
    if (entry.row_class == RowClass::kPrefill) {
      AddPrefill(entry, i);
    } else {
      AddDecode(entry, i);
    }
  }
  for (const Task& task : unordered_) total_nanos_ += task.nanos;
  Order();
}

void Plan::AddPrefill(const AttendEntry& entry, uint32_t index) {
  const int64_t group_size = spec_->group_size();
  const int64_t rows = entry.q_len * group_size;
  for (int64_t begin = 0; begin < rows; begin += limits_.max_prefill_rows) {
    const int64_t end = std::min(rows, begin + limits_.max_prefill_rows);
    const int64_t keys = KeysOf(*spec_, entry, begin / group_size, (end - 1) / group_size).size();
    const float nanos = NanosOf(end - begin, keys);
    for (uint32_t head = entry.kv_head_begin; head < entry.kv_head_end; ++head) {
      unordered_.push_back({.entry = index,
                            .kv_head_begin = head,
                            .kv_head_end = head + 1,
                            .row_class = RowClass::kPrefill,
                            .begin = begin,
                            .end = end,
                            .nanos = nanos});
    }
  }
}

void Plan::AddDecode(const AttendEntry& entry, uint32_t index) {
  const score::Interval keys = KeysOf(*spec_, entry, 0, entry.q_len - 1);
  const score::Interval leaves = LeavesOf(keys);
  const float head_nanos = NanosOf(int64_t{entry.q_len} * spec_->group_size(), keys.size());
  uint32_t heads_per_task = entry.kv_head_end - entry.kv_head_begin;
  if (limits_.num_threads > 1) {
    if (head_nanos > 1.5 * task_nanos_ && leaves.size() > 1) {
      const float leaf_nanos = head_nanos / static_cast<float>(leaves.size());
      for (uint32_t head = entry.kv_head_begin; head < entry.kv_head_end; ++head) {
        AddSplitHead(entry, index, head, leaves, leaf_nanos);
      }
      return;
    }
    const double fitting = task_nanos_ / std::max(head_nanos, 1.0f);
    if (fitting < heads_per_task) heads_per_task = std::max(1u, static_cast<uint32_t>(fitting));
  }
  for (uint32_t head = entry.kv_head_begin; head < entry.kv_head_end; head += heads_per_task) {
    const uint32_t head_end = std::min(entry.kv_head_end, head + heads_per_task);
    unordered_.push_back({.entry = index,
                          .kv_head_begin = head,
                          .kv_head_end = head_end,
                          .row_class = RowClass::kDecode,
                          .begin = leaves.begin,
                          .end = leaves.end,
                          .nanos = head_nanos * static_cast<float>(head_end - head)});
  }
}

void Plan::AddSplitHead(const AttendEntry& entry, uint32_t index, uint32_t kv_head,
                        score::Interval leaves, float leaf_nanos) {
  const RunSplit runs = SplitIntoRuns(leaves, static_cast<int64_t>(task_nanos_ / leaf_nanos));
  const bool is_split = runs.num_runs > 1;
  const int32_t split = is_split ? static_cast<int32_t>(splits_.size()) : kNoSplit;
  if (is_split) {
    splits_.push_back({index, kv_head, runs, partial_floats_});
    const int64_t rows = int64_t{entry.q_len} * spec_->group_size();
    // As PartialShape::floats: maxima, sums and outputs padded to 16.
    partial_floats_ += runs.num_runs * rows * (2 + DivideUp(spec_->head_dim_v, 16) * 16);
  }
  for (int64_t i = 0; i < runs.num_runs; ++i) {
    const score::Interval part = runs.LeavesOfRun(leaves, i);
    unordered_.push_back({.entry = index,
                          .kv_head_begin = kv_head,
                          .kv_head_end = kv_head + 1,
                          .row_class = RowClass::kDecode,
                          .split = split,
                          .begin = part.begin,
                          .end = part.end,
                          .nanos = leaf_nanos * static_cast<float>(part.size())});
  }
}

void Plan::Order() {
  if (limits_.num_threads == 1) {
    tasks_.swap(unordered_);
    return;
  }
  size_t starts[kBuckets + 1] = {};
  for (const Task& task : unordered_) ++starts[kBuckets - BucketOf(task.nanos)];
  for (int i = 1; i <= kBuckets; ++i) starts[i] += starts[i - 1];
  tasks_.resize(unordered_.size());
  for (const Task& task : unordered_) {
    tasks_[starts[kBuckets - 1 - BucketOf(task.nanos)]++] = task;
  }
}

}  // namespace attn::plan
