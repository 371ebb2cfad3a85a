// The pages of one layer group on the device, and what else of the group the kernels need.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda/backend/device_memory_range.h"
#include "attention/cuda/device_buffer.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"
#include "attn/attention/backend.h"

namespace attn::cuda {

class CudaKvStore : public KvStore {
 public:
  // REQUIRES: CheckSupported(spec).ok().
  static absl::StatusOr<std::unique_ptr<CudaKvStore>> Create(const AttentionSpec& spec,
                                                             int32_t num_pages, int device);
  ~CudaKvStore() override;

  const AttentionSpec& spec() const override { return spec_; }
  int32_t num_pages() const override { return pool_.num_pages; }
  int64_t page_bytes() const override { return pool_.page_bytes(); }
  absl::Status CommitPages(PageId first, int32_t count) override;
  // REQUIRES: no launch that uses the pages is under way.
  void ReleasePages(PageId first, int32_t count) override;

  const KvPool& pool() const { return pool_; }
  const LaunchScore& score() const { return score_; }

 private:
  CudaKvStore(const AttentionSpec& spec, int device, std::unique_ptr<DeviceMemoryRange> memory,
              DeviceBuffer sinks, int32_t num_pages);

  const AttentionSpec spec_;
  const int device_;
  const std::unique_ptr<DeviceMemoryRange> memory_;
  const DeviceBuffer sinks_;  // [num_layers, num_q_heads, sink_logits_per_head]
  const KvPool pool_;
  const LaunchScore score_;
};

}  // namespace attn::cuda
