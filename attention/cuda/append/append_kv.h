// New keys and values into pages.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "attention/cuda/kv_pool.h"

namespace attn::cuda {

// Slots [begin, begin + count) of one (sequence, layer). On the device.
struct AppendRecord {
  const void* k = nullptr;  // [count, num_kv_heads, 128], the pool's type, 16-byte aligned
  const void* v = nullptr;  // likewise
  const int32_t* page_table = nullptr;
  int32_t layer = 0;
  int32_t begin = 0;
  int32_t count = 0;
};

// Up to kAppendSlots slots of a record; one CTA.
struct AppendItem {
  int32_t record = 0;
  int32_t first = 0;  // within the record
};
inline constexpr int kAppendSlots = 8;

// Adds the kernel to the stream. Arrays are on the device. Nothing happens without items.
absl::Status LaunchAppendKv(const KvPool& pool, const AppendRecord* records,
                            const AppendItem* items, int num_items, cudaStream_t stream);

}  // namespace attn::cuda
