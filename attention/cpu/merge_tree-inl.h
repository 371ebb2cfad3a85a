// The one fixed binary tree in which decode parts merge: node (k, i) covers leaves
// [i 2^k, (i + 1) 2^k), and merging with a part that saw no key is the identity. So the result does
// not depend on who computed which run of leaves.
#include <cstdint>
#include <cstring>

#include "attention/cpu/attend.h"
#include "attention/cpu/attend_tile-inl.h"

#if defined(ATTN_CPU_MERGE_TREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CPU_MERGE_TREE_INL_H_
#undef ATTN_CPU_MERGE_TREE_INL_H_
#else
#define ATTN_CPU_MERGE_TREE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE RowState StateIn(float* partial, size_t rows, size_t out_stride) {
  return {partial, partial + rows, partial + 2 * rows, out_stride};
}

// left = merge(left, right), row by row.
HWY_INLINE void MergeInto(const RowState& left, const RowState& right, size_t rows,
                          float log2_scale) {
  const FloatTag tag;
  for (size_t r = 0; r < rows; ++r) {
    if (right.max[r] == score::kNoScore) continue;
    float* left_out = left.out + r * left.out_stride;
    const float* right_out = right.out + r * right.out_stride;
    if (left.max[r] == score::kNoScore) {
      left.max[r] = right.max[r];
      left.sum[r] = right.sum[r];
      std::memcpy(left_out, right_out, left.out_stride * sizeof(float));
      continue;
    }
    const score::MergeWeights weights = score::Merge(left.max[r], right.max[r], log2_scale);
    left.max[r] = weights.max;
    left.sum[r] = score::Merged(weights, left.sum[r], right.sum[r]);
    const FloatVec left_weight = hn::Set(tag, weights.left);
    const FloatVec right_weight = hn::Set(tag, weights.right);
    for (size_t d = 0; d < left.out_stride; d += kLanes) {  // score::Merged of each element
      const FloatVec scaled = hn::Mul(hn::LoadU(tag, right_out + d), right_weight);
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, left_out + d), left_weight, scaled), tag, left_out + d);
    }
  }
}

// Nodes come in order of their indices, without gaps, and are merged as soon as both halves of
// their parent are there. At most one node per level is kept.
class MergeTree {
 public:
  static constexpr size_t kMaxDepth = 64;

  // Nodes that are open at once while `count` nodes pass, the one being made included.
  static size_t DepthOf(int64_t count) {
    size_t depth = 2;
    for (; count > 1; count /= 2) ++depth;
    return depth;
  }

  // `stack` holds DepthOf(count) partials of this shape.
  MergeTree(float* stack, PartialShape shape, float log2_scale)
      : stack_(stack), shape_(shape), log2_scale_(log2_scale) {}

  // Where the next node goes before Push.
  RowState next() const { return StateAt(size_); }

  void Push(int64_t index) {
    int level = 0;
    // A node with an odd index completes its parent, alone if its sibling is absent.
    for (; index % 2 != 0; index /= 2, ++level) {
      if (size_ > 0 && nodes_[size_ - 1].level == level && nodes_[size_ - 1].index == index - 1) {
        MergeInto(StateAt(size_ - 1), StateAt(size_), shape_.rows, log2_scale_);
        --size_;
      }
    }
    nodes_[size_++] = {level, index};
  }

  // REQUIRES: at least one Push.
  RowState Root() {
    for (; size_ > 1; --size_) {
      MergeInto(StateAt(size_ - 2), StateAt(size_ - 1), shape_.rows, log2_scale_);
    }
    return StateAt(0);
  }

 private:
  struct Node {
    int level;
    int64_t index;
  };

  RowState StateAt(size_t i) const {
    return StateIn(stack_ + i * shape_.floats(), shape_.rows, shape_.out_stride);
  }

  float* const stack_;
  const PartialShape shape_;
  const float log2_scale_;
  Node nodes_[kMaxDepth];
  size_t size_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTN_CPU_MERGE_TREE_INL_H_
