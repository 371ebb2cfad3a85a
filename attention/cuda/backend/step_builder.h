// Turns the pieces of a step into what the device needs: one image to send (page tables, records,
// work items, keys, values and queries), the arguments of its kernels, and where results go. Pure:
// device addresses are only computed with.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cuda/append/append_kv.h"
#include "attention/cuda/append/copy_pages.h"
#include "attention/cuda/backend/batch_cutter.h"
#include "attention/cuda/backend/bulk_copy.h"
#include "attention/cuda/backend/step_image.h"
#include "attention/cuda/decode/plan.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/forward/args.h"
#include "attention/cuda/kv_pool.h"
#include "attention/cuda/step_share.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn::cuda {

// The memory of a step, each `bytes` as limited by StepLimits.
struct StepMemory {
  uint8_t* host_image = nullptr;
  uint8_t* device_image = nullptr;
  uint8_t* device_outputs = nullptr;
};

// Results of a piece: in the step's outputs, and in the caller's memory.
struct RowResult {
  int64_t out_offset = 0;  // [rows, num_q_heads, 128], fp32 or bf16
  int64_t lse_offset = 0;  // [rows, num_q_heads]
  void* out = nullptr;     // the same shape, of dtype; any alignment
  float* lse = nullptr;    // or null; any alignment
  int32_t rows = 0;
  int32_t num_q_heads = 0;
  int32_t head_begin = 0;  // only these query heads are there
  int32_t head_end = 0;
  DType dtype = DType::kBFloat16;
};

// All pointers that kernels get are addresses on the device.
struct Step {
  int64_t upload_bytes = 0;
  int64_t output_bytes = 0;

  const PageCopyRecord* copies = nullptr;
  std::vector<int> copy_runs;

  const AppendRecord* append_records = nullptr;
  const AppendItem* append_items = nullptr;
  int32_t num_append_items = 0;

  const void* q = nullptr;  // [total_q, num_q_heads, 128], decode rows first
  int64_t total_q = 0;

  const EntryRecord* decode_entries = nullptr;
  const DecodeItem* decode_items = nullptr;
  const CombineItem* combines = nullptr;
  DecodePlan decode_plan;

  const EntryRecord* forward_entries = nullptr;
  const ForwardItem* forward_items = nullptr;
  int32_t num_forward_items = 0;

  StepWork work;  // for sharing the device between both classes

  std::vector<RowResult> results;

  bool has_decode() const { return !decode_plan.items.empty(); }
  bool has_forward() const { return num_forward_items > 0; }
};

// What a group of layers gives to all of its steps.
struct StepContext {
  const AttentionSpec* spec = nullptr;
  const KvPool* pool = nullptr;
  const LaunchScore* score = nullptr;
  StepLimits limits;
  BulkCopier* copier = nullptr;
};

// Writes the image and fills `step`, whose memory is kept. REQUIRES: `pieces` were cut with the
// same limits.
void BuildStep(const StepContext& context, const Batch& batch, const StepPieces& pieces,
               const StepMemory& memory, Step* step);

}  // namespace attn::cuda
