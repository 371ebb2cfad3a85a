#include "attention/cuda/backend/kv_store.h"

#include <cuda_runtime_api.h>

#include <limits>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda/backend/supported_spec.h"
#include "attention/cuda/cuda_status.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

// One box of the pool's tensor map has one number, and so has one block.
absl::Status CheckPages(const KvPool& pool) {
  const int64_t most = std::numeric_limits<int32_t>::max() / pool.blocks_per_page();
  if (pool.num_pages >= 1 && pool.num_pages <= most) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "num_pages",
                   absl::StrCat("got ", pool.num_pages, ", want 1 to ", most, " with ",
                                pool.blocks_per_page(), " blocks in a page"));
}

absl::StatusOr<DeviceBuffer> SinksOnDevice(const AttentionSpec& spec) {
  const size_t bytes = spec.score.sink_logits.size() * sizeof(float);
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer sinks, DeviceBuffer::Create(bytes));
  if (bytes > 0) {
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(
        cudaMemcpy(sinks.data(), spec.score.sink_logits.data(), bytes, cudaMemcpyHostToDevice)));
  }
  return sinks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKvStore>> CudaKvStore::Create(const AttentionSpec& spec,
                                                                 int32_t num_pages, int device) {
  const KvPool pool = PoolOf(spec, num_pages, nullptr);
  ATTN_RETURN_IF_ERROR(CheckPages(pool));
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaSetDevice(device)));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer sinks, SinksOnDevice(spec));
  ATTN_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemoryRange> memory,
                        DeviceMemoryRange::Reserve(device, num_pages * pool.page_bytes()));
  return absl::WrapUnique(
      new CudaKvStore(spec, device, std::move(memory), std::move(sinks), num_pages));
}

CudaKvStore::CudaKvStore(const AttentionSpec& spec, int device,
                         std::unique_ptr<DeviceMemoryRange> memory, DeviceBuffer sinks,
                         int32_t num_pages)
    : spec_(spec),
      device_(device),
      memory_(std::move(memory)),
      sinks_(std::move(sinks)),
      pool_(PoolOf(spec, num_pages, memory_->base())),
      score_(ScoreOf(spec, sinks_.as<float>())) {}

CudaKvStore::~CudaKvStore() { cudaSetDevice(device_); }

absl::Status CudaKvStore::CommitPages(PageId first, int32_t count) {
  if (first < 0 || count < 0 || first > pool_.num_pages - count) {
    return MakeError(Reason::kInternal, "pages",
                     absl::StrCat("got [", first, ", ", int64_t{first} + count,
                                  "), want within [0, ", pool_.num_pages, ")"));
  }
  if (count == 0) return absl::OkStatus();
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaSetDevice(device_)));
  return memory_->Commit(first * page_bytes(), (int64_t{first} + count) * page_bytes());
}

void CudaKvStore::ReleasePages(PageId first, int32_t count) {
  ATTN_CHECK(first >= 0 && count >= 0 && first <= pool_.num_pages - count, "first ", first,
             " count ", count, " num_pages ", pool_.num_pages);
  if (count == 0) return;
  cudaSetDevice(device_);
  memory_->Release(first * page_bytes(), (int64_t{first} + count) * page_bytes());
}

}  // namespace attn::cuda
