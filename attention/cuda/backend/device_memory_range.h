// An address range on the device whose memory comes and goes by parts.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda/backend/granule_ledger.h"

namespace attn::cuda {

// Owner of the range and its memory. The device must be current in all calls, and nothing that runs
// on it may use what is given back.
class DeviceMemoryRange {
 public:
  // At least `bytes`; its first granule (2 MiB as a rule) always has memory.
  static absl::StatusOr<std::unique_ptr<DeviceMemoryRange>> Reserve(int device, int64_t bytes);
  ~DeviceMemoryRange();
  DeviceMemoryRange(const DeviceMemoryRange&) = delete;
  DeviceMemoryRange& operator=(const DeviceMemoryRange&) = delete;

  uint8_t* base() const { return reinterpret_cast<uint8_t*>(base_); }
  // Backs bytes [begin, end). NO_PAGES if the device has not enough memory: nothing has changed.
  absl::Status Commit(int64_t begin, int64_t end);
  // Undoes a Commit of the same bytes.
  void Release(int64_t begin, int64_t end);

 private:
  struct Calls;
  static absl::StatusOr<Calls> FindCalls();

  DeviceMemoryRange(const Calls& calls, int device, CUdeviceptr base, int64_t bytes,
                    int64_t granule_bytes);
  GranuleRun GranulesOf(int64_t begin, int64_t end) const;
  absl::Status Map(const GranuleRun& run);
  void Unmap(const GranuleRun& run);

  const std::unique_ptr<const Calls> calls_;
  const int device_;
  const CUdeviceptr base_;
  const int64_t bytes_;
  const int64_t granule_bytes_;
  GranuleLedger ledger_;
  std::map<int64_t, CUmemGenericAllocationHandle> handles_;  // by first granule of a run
};

}  // namespace attn::cuda
