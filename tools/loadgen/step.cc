#include "tools/loadgen/step.h"

#include <algorithm>

namespace attn::loadgen {

std::vector<StepItem> ComposeStep(const std::vector<ActiveSequence*>& active,
                                  uint32_t prefill_chunk) {
  std::vector<StepItem> items;
  for (ActiveSequence* sequence : active) {
    if (!sequence->is_prefilling()) items.push_back({sequence, 1});
  }
  for (ActiveSequence* sequence : active) {
    if (!sequence->is_prefilling() || prefill_chunk == 0) continue;
    const uint32_t rows = std::min(prefill_chunk, sequence->plan.context_len - sequence->len);
    prefill_chunk -= rows;
    items.push_back({sequence, rows});
  }
  return items;
}

const client::AttendRequest& LayerRequest::Build(const std::vector<StepItem>& items, uint32_t layer,
                                                 BitFlipper* flipper, double share) {
  const size_t size = SizeOf(model_->dtype);
  const size_t q_bytes = model_->q_elements() * size;
  const size_t kv_bytes = model_->kv_elements() * size;
  size_t total_rows = 0;
  for (const StepItem& item : items) total_rows += item.rows;
  q_.resize(total_rows * q_bytes);
  k_.resize(total_rows * kv_bytes);
  v_.resize(total_rows * kv_bytes);
  request_.items.clear();
  size_t at = 0;
  for (const StepItem& item : items) {
    RowId row{item.sequence->number, layer, item.sequence->len};
    request_.items.push_back({item.sequence->id, layer, row.position, item.rows, item.rows});
    for (uint32_t r = 0; r < item.rows; ++r, ++row.position, ++at) {
      char* const q = q_.data() + at * q_bytes;
      char* const k = k_.data() + at * kv_bytes;
      source_->Fill(row, TensorKind::kQuery, model_->q_elements(), q);
      source_->Fill(row, TensorKind::kKey, model_->kv_elements(), k);
      source_->Fill(row, TensorKind::kValue, model_->kv_elements(), v_.data() + at * kv_bytes);
      constexpr uint32_t kEnoughKeys = 4;
      if (flipper != nullptr && row.position >= kEnoughKeys && source_->IsSampled(row, share)) {
        flipper->Flip(*model_, q, k);
      }
    }
  }
  request_.dtype = model_->dtype;
  request_.q = client::BytesOf(q_);
  request_.k = client::BytesOf(k_);
  request_.v = client::BytesOf(v_);
  request_.return_lse = share > 0;
  return request_;
}

}  // namespace attn::loadgen
