#include "attention/cuda/backend/hand_back.h"

#include "attention/cuda/kv_pool.h"
#include "attn/base/dtype.h"

namespace attn::cuda {
namespace {

// Calls move(first, count) for every stretch of neighbouring (row, head) pairs that are there.
template <typename Move>
void ForEachStretch(const RowResult& result, const Move& move) {
  if (result.head_end - result.head_begin == result.num_q_heads) {
    move(int64_t{0}, int64_t{result.rows} * result.num_q_heads);
    return;
  }
  for (int64_t row = 0; row < result.rows; ++row) {
    move(row * result.num_q_heads + result.head_begin,
         int64_t{result.head_end} - result.head_begin);
  }
}

void MoveOut(const RowResult& result, const uint8_t* source, int64_t first, int64_t count,
             BulkCopier* copier) {
  auto* target = static_cast<uint8_t*>(result.out);
  if (result.dtype == DType::kFloat16) {  // kernels wrote float32
    for (int64_t i = first * kKvHeadDim; i < (first + count) * kKvHeadDim; ++i) {
      StoreFromFloat(DType::kFloat16, target, i, LoadAsFloat(DType::kFloat32, source, i));
    }
    return;
  }
  const int64_t head_bytes = kKvHeadDim * static_cast<int64_t>(SizeOf(result.dtype));
  copier->Add(target + first * head_bytes, source + first * head_bytes, count * head_bytes);
}

}  // namespace

void HandBack(absl::Span<const RowResult> results, const uint8_t* outputs, BulkCopier* copier) {
  for (const RowResult& result : results) {
    ForEachStretch(result, [&](int64_t first, int64_t count) {
      MoveOut(result, outputs + result.out_offset, first, count, copier);
      if (result.lse == nullptr) return;
      copier->Add(reinterpret_cast<uint8_t*>(result.lse) + first * int64_t{sizeof(float)},
                  outputs + result.lse_offset + first * int64_t{sizeof(float)},
                  count * int64_t{sizeof(float)});
    });
  }
  copier->Finish();
}

}  // namespace attn::cuda
