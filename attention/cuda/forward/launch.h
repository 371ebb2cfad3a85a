// Starting a forward kernel: which one, and with what.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/cuda/forward/args.h"
#include "attention/cuda/forward/config.h"

namespace attn::cuda {

struct ForwardInstance {
  const char* name;
  ForwardConfig config;
  const void* kernel;
  int shared_bytes;
};

// All that are compiled in.
absl::Span<const ForwardInstance* const> ForwardInstances();

// The kernel for a page size: boxes where pages consist of 8 slots or more, else gathering. Never a
// function of the batch, so a row's bits do not depend on its mates.
const ForwardInstance& SelectForward(int page_size);

// What the caller knows of a launch. Arrays are on the device and must outlive the launch.
struct ForwardLaunch {
  KvPool pool;
  LaunchScore score;
  const void* q = nullptr;  // [total_q, num_q_heads, 128], 16-byte aligned
  int64_t total_q = 0;      // below 2^31
  int32_t num_q_heads = 0;
  const EntryRecord* entries = nullptr;
  const ForwardItem* items = nullptr;
  int32_t num_items = 0;
  int32_t* next_item = nullptr;  // see ForwardArgs
  int64_t* cta_cycles = nullptr;
};

// Encodes the maps; worth keeping while nothing of `launch` but lengths changes.
absl::StatusOr<ForwardArgs> MakeForwardArgs(const ForwardLaunch& launch);

// Adds the kernel to the stream; at most num_ctas CTAs. Nothing happens without items.
absl::Status LaunchForward(const ForwardInstance& instance, const ForwardArgs& args, int num_ctas,
                           cudaStream_t stream);

}  // namespace attn::cuda
