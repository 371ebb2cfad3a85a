// Turns a raw dot product into a score, and knows the way back. While logits are linear in the dot
// product the score is the dot product itself and the softmax folds the constant into exp2; else
// the score is the finished natural logit.
#pragma once

#include <cmath>

#include "attn/base/hd.h"

namespace attn::score {

struct ScoreOp {
  float cap = 0.0f;          // 0: linear; else scores live in [-cap, cap]
  float input_scale = 0.0f;  // softmax scale / cap

  ATTN_HD bool IsLinear() const { return cap == 0.0f; }

  ATTN_HD float Value(float dot) const {
    return IsLinear() ? dot : cap * std::tanh(dot * input_scale);
  }

  // d(score) / d(softmax scale * dot), or / d(dot) if linear, from the score itself.
  ATTN_HD float Derivative(float score) const {
    if (IsLinear()) return 1.0f;
    const float ratio = score / cap;
    return 1.0f - ratio * ratio;
  }
};

}  // namespace attn::score
