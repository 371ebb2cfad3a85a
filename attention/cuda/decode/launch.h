// Starting the decode kernels: which one, and with what.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/cuda/decode/args.h"
#include "attention/cuda/decode/config.h"

namespace attn::cuda {

struct DecodeInstance {
  const char* name;
  DecodeConfig config;
  const void* kernel;
};

// All that are compiled in.
absl::Span<const DecodeInstance* const> DecodeInstances();

// The kernel for a page size: boxes where pages consist of 16 slots or more, else gathering. Never
// a function of the batch.
const DecodeInstance& SelectDecode(int page_size);

// What the caller knows of a launch. Arrays are on the device and must outlive the launch.
struct DecodeLaunch {
  KvPool pool;
  LaunchScore score;
  const void* q = nullptr;  // [total_q, num_q_heads, 128], 16-byte aligned
  int32_t num_q_heads = 0;
  int32_t rows_per_block = kDecodeRows;  // as planned
  const EntryRecord* entries = nullptr;
  const DecodeItem* items = nullptr;
  int32_t num_items = 0;
  const CombineItem* combines = nullptr;
  int32_t num_combines = 0;
  // Workspace, DecodeWorkspaceBytes(...); undefined content. Not shared by launches that may
  // overlap.
  uint8_t* workspace = nullptr;
  int32_t num_partials = 0;
};

int64_t DecodeWorkspaceBytes(int32_t num_partials, int32_t num_kv_heads, int32_t rows_per_block);

// Encodes the map; worth keeping while nothing of `launch` but lengths changes.
absl::StatusOr<DecodeArgs> MakeDecodeArgs(const DecodeLaunch& launch);

// Adds both kernels to the stream, the second chained so that it starts while the first drains.
// Nothing happens without items.
absl::Status LaunchDecode(const DecodeInstance& instance, const DecodeArgs& args, int num_items,
                          int num_combines, cudaStream_t stream);

}  // namespace attn::cuda
