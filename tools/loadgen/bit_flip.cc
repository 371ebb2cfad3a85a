#include "tools/loadgen/bit_flip.h"

#include <cmath>

namespace attn::loadgen {

bool BitFlipper::Flip(const ModelPlan& model, const char* q, char* k) {
  if (done_.load()) return false;
  for (uint32_t d = 0; d < model.head_dim; ++d) {
    const float query = LoadAsFloat(model.dtype, q, d);  // query head 0 reads KV head 0
    const float key = LoadAsFloat(model.dtype, k, d);
    // Below 1 the flipped number stays finite.
    if (query * key * model.softmax_scale <= 0 || std::abs(key) >= 1) continue;
    if (done_.exchange(true)) return false;
    const size_t size = SizeOf(model.dtype);
    k[d * size + size - 1] ^= 0x40;  // below the sign bit of the last, highest byte
    return true;
  }
  return false;
}

}  // namespace attn::loadgen
