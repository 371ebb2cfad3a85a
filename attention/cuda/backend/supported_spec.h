// Which specs the kernels compute, and how the kernels see them. Pure.
#pragma once

#include "absl/status/status.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"
#include "attn/attention/attention_spec.h"

namespace attn::cuda {

// OK, or INVALID or UNSUPPORTED naming the field, its value and what is supported.
absl::Status CheckSupported(const AttentionSpec& spec);

// The pool of a spec, its memory at `base`.
KvPool PoolOf(const AttentionSpec& spec, int32_t num_pages, uint8_t* base);

// What does not depend on the entry. `sinks` are the spec's on the device, null if it has none.
LaunchScore ScoreOf(const AttentionSpec& spec, const float* sinks);

}  // namespace attn::cuda
