// The CUDA backend: cuts a batch into steps, lets them overlap in a ring of slots, and hands
// results back in order.
#include "attn/attention/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/backend/batch_cutter.h"
#include "attention/cuda/backend/bulk_copy.h"
#include "attention/cuda/backend/device_facts.h"
#include "attention/cuda/backend/kv_store.h"
#include "attention/cuda/backend/step_slot.h"
#include "attention/cuda/backend/supported_spec.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/config.h"
#include "attention/plan/entry_cost.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn {
namespace cuda {
namespace {

constexpr int64_t kLeastStaging = int64_t{1} << 20;
constexpr int64_t kMostStaging = int64_t{1} << 30;
// Partial results of decode in one step: enough for 128 rows over 32,768 keys with 8 KV heads,
// three times over. Steps with more are cut.
constexpr int64_t kWorkspaceBytes = int64_t{128} << 20;
// One step may be copied in and one out while a third computes.
constexpr uint64_t kSlots = 3;
// A row's bits do not depend on where cuts fall; whole work tiles for any group size.
constexpr int32_t kPrefillCutRows = 512;

constexpr int kMaxCopyThreads = 64;
// More do not copy faster on the hosts seen.
constexpr int kUsefulCopyThreads = 4;

int CopyThreads(const CudaBackendOptions& options) {
  if (options.copy_threads > 0) return options.copy_threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores - 1, 1, kUsefulCopyThreads);
}

absl::Status CheckOptions(const CudaBackendOptions& options) {
  if (options.staging_bytes < kLeastStaging || options.staging_bytes > kMostStaging) {
    return MakeError(Reason::kInvalid, "staging_bytes",
                     absl::StrCat("got ", options.staging_bytes, ", want ", kLeastStaging, " to ",
                                  kMostStaging));
  }
  if (options.copy_threads < 0 || options.copy_threads > kMaxCopyThreads) {
    return MakeError(Reason::kInvalid, "copy_threads",
                     absl::StrCat("got ", options.copy_threads, ", want 0 (up to ",
                                  kUsefulCopyThreads, ") or 1 to ", kMaxCopyThreads));
  }
  return absl::OkStatus();
}

class CudaBackend : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const CudaBackendOptions& options);
  ~CudaBackend() override { cudaSetDevice(device_); }

  std::string device_name() const override {
    return absl::StrCat("cuda, ", facts_.name, ", ", facts_.num_sms, " SMs");
  }
  absl::Status Supports(const AttentionSpec& spec) const override { return CheckSupported(spec); }
  int64_t PageBytes(const AttentionSpec& spec) const override {
    return PoolOf(spec, 1, nullptr).page_bytes();
  }
  absl::StatusOr<std::unique_ptr<KvStore>> CreateKvStore(const AttentionSpec& spec,
                                                         const KvStoreOptions& options) override {
    ATTN_RETURN_IF_ERROR(CheckSupported(spec));
    ATTN_RETURN_IF_ERROR(lost_);
    return CudaKvStore::Create(spec, options.num_pages, device_);
  }
  absl::StatusOr<Ticket> Launch(KvStore& store, const Batch& batch) override;
  absl::Status Wait(Ticket ticket) override;

  Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry) const override {
    return plan::CostOf(spec, entry);
  }
  int32_t prefill_cut_rows() const override { return kPrefillCutRows; }
  int64_t max_kv_len() const override { return kMaxDecodeKeys; }

 private:
  CudaBackend(const CudaBackendOptions& options, DeviceFacts facts, const StepLimits& limits)
      : device_(options.device),
        facts_(std::move(facts)),
        limits_(limits),
        cutter_(limits),
        copier_(CopyThreads(options)) {}

  struct OpenLaunch {
    uint64_t ticket = 0;
    uint64_t steps = 0;  // it is done when so many of all steps are finished
  };

  absl::Status StartStep(const CudaKvStore& store, const Batch& batch, const StepPieces& pieces);
  // Finishes steps in order until `count` of all are finished.
  absl::Status FinishSteps(uint64_t count);
  // Remembers that the device is lost, and why.
  absl::Status Lose(const absl::Status& status);

  const int device_;
  const DeviceFacts facts_;
  const StepLimits limits_;
  BatchCutter cutter_;
  BulkCopier copier_;
  std::vector<StepSlot> slots_;  // [kSlots]; step n, from 0, is in slot n % kSlots
  uint64_t started_ = 0;         // steps
  uint64_t finished_ = 0;
  uint64_t launches_ = 0;
  std::deque<OpenLaunch> open_;  // not waited for, in order
  absl::Status lost_;            // once not OK, nothing is computed any more
};

absl::StatusOr<std::unique_ptr<Backend>> CudaBackend::Create(const CudaBackendOptions& options) {
  ATTN_RETURN_IF_ERROR(CheckOptions(options));
  ATTN_ASSIGN_OR_RETURN(DeviceFacts facts, FactsOf(options.device));
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaSetDevice(options.device)));
  const StepLimits limits{options.staging_bytes, options.staging_bytes, kWorkspaceBytes,
                          facts.num_sms};
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options, std::move(facts), limits));
  for (uint64_t i = 0; i < kSlots; ++i) {
    ATTN_ASSIGN_OR_RETURN(StepSlot slot, StepSlot::Create(limits));
    backend->slots_.push_back(std::move(slot));
  }
  return backend;
}

absl::StatusOr<Ticket> CudaBackend::Launch(KvStore& store, const Batch& batch) {
  ATTN_RETURN_IF_ERROR(lost_);
  // Stores come from CreateKvStore of this backend.
  const CudaKvStore& kv = static_cast<const CudaKvStore&>(store);
  ATTN_RETURN_IF_ERROR(cutter_.Cut(kv.spec(), kv.score(), batch));
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaSetDevice(device_)));
  for (size_t i = 0; i < cutter_.num_steps(); ++i) {
    if (absl::Status started = StartStep(kv, batch, cutter_.step(i)); !started.ok()) {
      return Lose(started);
    }
  }
  ++launches_;
  open_.push_back({launches_, started_});
  return Ticket{.value = launches_};
}

absl::Status CudaBackend::StartStep(const CudaKvStore& store, const Batch& batch,
                                    const StepPieces& pieces) {
  if (started_ - finished_ == kSlots) ATTN_RETURN_IF_ERROR(FinishSteps(finished_ + 1));
  const StepSlot* previous = started_ > finished_ ? &slots_[(started_ - 1) % kSlots] : nullptr;
  const StepContext context{&store.spec(), &store.pool(), &store.score(), limits_, &copier_};
  ATTN_RETURN_IF_ERROR(slots_[started_ % kSlots].Start(context, batch, pieces, previous));
  ++started_;
  return absl::OkStatus();
}

absl::Status CudaBackend::FinishSteps(uint64_t count) {
  while (finished_ < count) {
    ATTN_RETURN_IF_ERROR(slots_[finished_ % kSlots].Finish(&copier_));
    ++finished_;
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Wait(Ticket ticket) {
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const OpenLaunch& launch) {
    return launch.ticket == ticket.value;
  });
  ATTN_CHECK(open != open_.end(), "ticket ", ticket.value);
  const uint64_t steps = open->steps;
  open_.erase(open);
  ATTN_RETURN_IF_ERROR(lost_);
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaSetDevice(device_)));
  const absl::Status finished = FinishSteps(steps);
  return finished.ok() ? finished : Lose(finished);
}

// Whatever the first error is: some of a launch may have happened, so nothing that is there now can
// be relied on.
absl::Status CudaBackend::Lose(const absl::Status& status) {
  lost_ = MakeError(Reason::kDeviceLost, "device", status.message());
  return lost_;
}

}  // namespace
}  // namespace cuda

absl::Status CheckCudaDevice(int device) { return cuda::FactsOf(device).status(); }

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  return cuda::CudaBackend::Create(options);
}

}  // namespace attn
