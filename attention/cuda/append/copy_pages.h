// Slots of one page into another, for copy-on-write.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/cuda/kv_pool.h"

namespace attn::cuda {

// Slots [0, slots_per_layer[i]) of every layer i. On the device.
struct PageCopyRecord {
  int32_t source = 0;
  int32_t target = 0;
  const uint32_t* slots_per_layer = nullptr;  // [num_layers], on the device
};

// Sizes of consecutive runs of copies that may be done at once: within a run no page is written
// that another copy of the run reads or writes.
std::vector<int> IndependentRuns(absl::Span<const PageCopyRecord> copies);

// Does `num_copies` independent copies. Nothing happens without any.
absl::Status LaunchCopyPages(const KvPool& pool, const PageCopyRecord* copies, int num_copies,
                             cudaStream_t stream);

}  // namespace attn::cuda
