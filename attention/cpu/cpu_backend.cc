// The CPU backend: checks a batch, does its copies and appends, plans its rows and walks the plan
// with a worker pool. A launch is done when Launch returns.
#include "attn/attention/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "attention/cpu/append.h"
#include "attention/cpu/attend.h"
#include "attention/cpu/kv_store.h"
#include "attention/cpu/scratch.h"
#include "attention/cpu/worker_pool.h"
#include "attention/plan/entry_cost.h"
#include "attention/plan/plan.h"
#include "attention/score/lower.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn {
namespace cpu {
namespace {

constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kMaxPageSize = 512;
constexpr int kMaxThreads = 1024;
constexpr int32_t kPrefillCutRows = 16;
// Waking parked threads costs tens of microseconds.
constexpr double kLeastNanosToWake = 50e3;
constexpr double kAppendBytesPerNano = 2.0;

absl::Status CheckHeadDim(const char* field, uint32_t head_dim) {
  if (head_dim % 8 == 0 && head_dim >= 8 && head_dim <= kMaxHeadDim) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   absl::StrCat("got ", head_dim,
                                ", the CPU backend supports multiples of 8 from "
                                "8 to ",
                                kMaxHeadDim));
}

absl::Status CheckDType(const char* field, DType dtype) {
  if (dtype <= DType::kBFloat16) return absl::OkStatus();
  return MakeError(Reason::kUnsupported, field,
                   absl::StrCat("got ", static_cast<int>(dtype),
                                ", the CPU backend supports float32, float16 and bfloat16"));
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int num_threads) : pool_(num_threads) {
    for (int i = 0; i < num_threads; ++i) scratch_.push_back(std::make_unique<Scratch>());
  }

  std::string device_name() const override {
    const int threads = pool_.num_threads();
    return absl::StrCat("cpu, ", threads, threads == 1 ? " thread, " : " threads, ",
                        absl::AsciiStrToLower(TargetName()));
  }

  absl::Status Supports(const AttentionSpec& spec) const override {
    ATTN_RETURN_IF_ERROR(Validate(spec));
    ATTN_RETURN_IF_ERROR(CheckHeadDim("head_dim_qk", spec.head_dim_qk));
    ATTN_RETURN_IF_ERROR(CheckHeadDim("head_dim_v", spec.head_dim_v));
    if (spec.page_size > kMaxPageSize) {
      return MakeError(
          Reason::kUnsupported, "page_size",
          absl::StrCat("got ", spec.page_size, ", the CPU backend supports 1 to ", kMaxPageSize));
    }
    ATTN_RETURN_IF_ERROR(CheckDType("activation_dtype", spec.activation_dtype));
    return CheckDType("kv_dtype", spec.kv_dtype);
  }

  int64_t PageBytes(const AttentionSpec& spec) const override {
    return KvLayout::Of(spec).page_bytes();
  }

  absl::StatusOr<std::unique_ptr<KvStore>> CreateKvStore(const AttentionSpec& spec,
                                                         const KvStoreOptions& options) override {
    ATTN_RETURN_IF_ERROR(Supports(spec));
    return CpuKvStore::Create(spec, options.num_pages);
  }

  absl::StatusOr<Ticket> Launch(KvStore& store, const Batch& batch) override {
    // Stores come from CreateKvStore of this backend.
    const CpuKvStore& kv = static_cast<const CpuKvStore&>(store);
    for (const PageCopy& copy : batch.copies) CopyPage(kv, copy);
    Append(kv, batch.appends);
    Attend(kv, batch.rows);
    return Ticket{.value = ++launches_, .is_done = true};
  }

  absl::Status Wait(Ticket ticket) override {
    ATTN_CHECK(ticket.value >= 1 && ticket.value <= launches_, "ticket ", ticket.value);
    return absl::OkStatus();
  }

  Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry) const override {
    return plan::CostOf(spec, entry);
  }

  int32_t prefill_cut_rows() const override { return kPrefillCutRows; }

 private:
  // Calls run(worker, task) once for every task in [0, num_tasks), in order of their begin.
  template <typename Run>
  void ForEachTask(size_t num_tasks, double nanos, const Run& run) {
    const int useful =
        static_cast<int>(std::min<size_t>(num_tasks, static_cast<size_t>(pool_.num_threads())));
    const int num_workers = nanos < kLeastNanosToWake ? 1 : std::max(1, useful);
    std::atomic<size_t> next = 0;
    pool_.Run(num_workers, [&](int worker) {
      for (size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) {
        run(worker, task);
      }
    });
  }

  void Append(const CpuKvStore& store, const std::vector<AppendEntry>& entries) {
    if (entries.empty()) return;
    const KvLayout& layout = store.layout();
    double bytes = 0;
    for (const AppendEntry& entry : entries) {
      bytes += static_cast<double>(entry.count) *
               static_cast<double>(layout.num_kv_heads * layout.head_bytes() / layout.page_size);
    }
    const size_t heads = static_cast<size_t>(layout.num_kv_heads);
    ForEachTask(entries.size() * heads, bytes / kAppendBytesPerNano, [&](int, size_t task) {
      AppendHead(store, entries[task / heads], static_cast<uint32_t>(task % heads));
    });
  }

  void Attend(const CpuKvStore& store, const std::vector<AttendEntry>& entries) {
    if (entries.empty()) return;
    plan_.Build(store.spec(), entries,
                {.num_threads = pool_.num_threads(), .max_prefill_rows = kMaxRows});
    PreparePartials();
    ForEachTask(plan_.tasks().size(), plan_.total_nanos(), [&](int worker, size_t index) {
      const plan::Task& task = plan_.tasks()[index];
      RunTask(store, entries[task.entry], task, *scratch_[static_cast<size_t>(worker)]);
    });
  }

  void PreparePartials() {
    const size_t num_splits = plan_.splits().size();
    if (partials_.size() < static_cast<size_t>(plan_.partial_floats())) {
      partials_.resize(static_cast<size_t>(plan_.partial_floats()));
    }
    if (num_splits > num_runs_left_) {
      runs_left_ = std::make_unique<std::atomic<int64_t>[]>(num_splits);
      num_runs_left_ = num_splits;
    }
    for (size_t i = 0; i < num_splits; ++i) {
      runs_left_[i].store(plan_.splits()[i].runs.num_runs, std::memory_order_relaxed);
    }
  }

  void RunTask(const CpuKvStore& store, const AttendEntry& entry, const plan::Task& task,
               Scratch& scratch) {
    HeadWork work{.spec = &store.spec(),
                  .layout = &store.layout(),
                  .store_base = store.base(),
                  .entry = &entry,
                  .score = score::Lower(store.spec(), entry)};
    for (work.kv_head = task.kv_head_begin; work.kv_head < task.kv_head_end; ++work.kv_head) {
      if (task.row_class == RowClass::kPrefill) {
        AttendPrefill(work, static_cast<int32_t>(task.begin), static_cast<int32_t>(task.end),
                      scratch);
      } else if (task.split == plan::kNoSplit) {
        AttendDecode(work, task.begin, task.end, scratch, nullptr);
      } else {
        RunSplitTask(work, task, scratch);
      }
    }
  }

  // The run's partial; the last run of a split to end merges them all.
  void RunSplitTask(const HeadWork& work, const plan::Task& task, Scratch& scratch) {
    const plan::Split& split = plan_.splits()[static_cast<size_t>(task.split)];
    float* partials = partials_.data() + split.first_partial;
    const int64_t run = (task.begin >> split.runs.log2_leaves) - split.runs.first_run;
    const int64_t floats = static_cast<int64_t>(PartialShape::Of(work).floats());
    AttendDecode(work, task.begin, task.end, scratch, partials + run * floats);
    std::atomic<int64_t>& left = runs_left_[static_cast<size_t>(task.split)];
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      MergeRuns(work, partials, split.runs.first_run, split.runs.num_runs, scratch);
    }
  }

  WorkerPool pool_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // [num_threads]
  plan::Plan plan_;
  std::vector<float> partials_;
  std::unique_ptr<std::atomic<int64_t>[]> runs_left_;  // [num_runs_left_], by split
  size_t num_runs_left_ = 0;
  uint64_t launches_ = 0;
};

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  int num_threads = options.num_threads;
  if (num_threads < 0 || num_threads > cpu::kMaxThreads) {
    return MakeError(Reason::kInvalid, "num_threads",
                     absl::StrCat("got ", num_threads,
                                  ", want 0 (one less than there are cores) "
                                  "or 1 to ",
                                  cpu::kMaxThreads));
  }
  if (num_threads == 0) {
    num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  }
  return std::make_unique<cpu::CpuBackend>(num_threads);
}

}  // namespace attn
