#include "attention/cuda/backend/device_memory_range.h"

#include "absl/memory/memory.h"
#include "attention/cuda/driver.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {

struct DeviceMemoryRange::Calls {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

namespace {

constexpr unsigned kVersion = 10020;  // the first with virtual memory calls

CUmemAllocationProp MemoryOn(int device) {
  CUmemAllocationProp memory = {};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.location.id = device;
  return memory;
}

}  // namespace

absl::StatusOr<DeviceMemoryRange::Calls> DeviceMemoryRange::FindCalls() {
  Calls calls;
  ATTN_RETURN_IF_ERROR(
      FindDriverFunction("cuMemGetAllocationGranularity", kVersion, &calls.granularity));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemAddressReserve", kVersion, &calls.reserve));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemAddressFree", kVersion, &calls.free));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemCreate", kVersion, &calls.create));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemRelease", kVersion, &calls.release));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemMap", kVersion, &calls.map));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemUnmap", kVersion, &calls.unmap));
  ATTN_RETURN_IF_ERROR(FindDriverFunction("cuMemSetAccess", kVersion, &calls.set_access));
  return calls;
}

absl::StatusOr<std::unique_ptr<DeviceMemoryRange>> DeviceMemoryRange::Reserve(int device,
                                                                              int64_t bytes) {
  ATTN_ASSIGN_OR_RETURN(const Calls calls, FindCalls());
  const CUmemAllocationProp memory = MemoryOn(device);
  size_t granule = 0;
  ATTN_RETURN_IF_ERROR(
      StatusOfDriver(calls.granularity(&granule, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                     "cuMemGetAllocationGranularity"));
  const auto granule_bytes = static_cast<int64_t>(granule);
  const int64_t whole = (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
  CUdeviceptr base = 0;
  ATTN_RETURN_IF_ERROR(StatusOfDriver(calls.reserve(&base, static_cast<size_t>(whole), 0, 0, 0),
                                      "cuMemAddressReserve"));
  auto range = absl::WrapUnique(new DeviceMemoryRange(calls, device, base, whole, granule_bytes));
  ATTN_RETURN_IF_ERROR(range->Commit(0, 1));
  return range;
}

DeviceMemoryRange::DeviceMemoryRange(const Calls& calls, int device, CUdeviceptr base,
                                     int64_t bytes, int64_t granule_bytes)
    : calls_(std::make_unique<const Calls>(calls)),
      device_(device),
      base_(base),
      bytes_(bytes),
      granule_bytes_(granule_bytes),
      ledger_(bytes / granule_bytes) {}

DeviceMemoryRange::~DeviceMemoryRange() {
  for (const GranuleRun& run : ledger_.BackedRuns()) Unmap(run);
  calls_->free(base_, static_cast<size_t>(bytes_));
}

GranuleRun DeviceMemoryRange::GranulesOf(int64_t begin, int64_t end) const {
  const int64_t first = begin / granule_bytes_;
  return {first, (end + granule_bytes_ - 1) / granule_bytes_ - first};
}

absl::Status DeviceMemoryRange::Commit(int64_t begin, int64_t end) {
  const GranuleRun run = GranulesOf(begin, end);
  for (const GranuleRun& fresh : ledger_.Use(run)) {
    if (absl::Status mapped = Map(fresh); !mapped.ok()) {
      Release(begin, end);
      return mapped;
    }
  }
  return absl::OkStatus();
}

void DeviceMemoryRange::Release(int64_t begin, int64_t end) {
  for (const GranuleRun& run : ledger_.Drop(GranulesOf(begin, end))) Unmap(run);
}

absl::Status DeviceMemoryRange::Map(const GranuleRun& run) {
  const CUmemAllocationProp memory = MemoryOn(device_);
  const auto bytes = static_cast<size_t>(run.count * granule_bytes_);
  const CUdeviceptr at = base_ + static_cast<CUdeviceptr>(run.first * granule_bytes_);
  CUmemGenericAllocationHandle handle = 0;
  ATTN_RETURN_IF_ERROR(StatusOfDriver(calls_->create(&handle, bytes, &memory, 0), "cuMemCreate"));
  CUmemAccessDesc access = {};
  access.location = memory.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  absl::Status usable = StatusOfDriver(calls_->map(at, bytes, 0, handle, 0), "cuMemMap");
  if (usable.ok()) {
    usable = StatusOfDriver(calls_->set_access(at, bytes, &access, 1), "cuMemSetAccess");
    if (!usable.ok()) calls_->unmap(at, bytes);
  }
  if (usable.ok()) {
    handles_[run.first] = handle;
  } else {
    calls_->release(handle);
  }
  return usable;
}

// A run whose mapping failed has no handle.
void DeviceMemoryRange::Unmap(const GranuleRun& run) {
  const auto handle = handles_.find(run.first);
  if (handle == handles_.end()) return;
  calls_->unmap(base_ + static_cast<CUdeviceptr>(run.first * granule_bytes_),
                static_cast<size_t>(run.count * granule_bytes_));
  calls_->release(handle->second);
  handles_.erase(handle);
}

}  // namespace attn::cuda
