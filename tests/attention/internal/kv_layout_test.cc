// Every element of K and V has a place of its own inside its page.
#include "attention/cpu/kv_layout.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace attn::cpu {
namespace {

struct Shape {
  uint32_t page_size;
  uint32_t head_dim_qk;
  uint32_t head_dim_v;
  DType dtype;
};

AttentionSpec SpecOf(const Shape& shape) {
  AttentionSpec spec;
  spec.num_layers = 2;
  spec.num_q_heads = spec.num_kv_heads = 3;
  spec.head_dim_qk = shape.head_dim_qk;
  spec.head_dim_v = shape.head_dim_v;
  spec.kv_dtype = shape.dtype;
  spec.page_size = shape.page_size;
  return spec;
}

class KvLayoutTest : public testing::TestWithParam<Shape> {};

TEST_P(KvLayoutTest, ElementsFillThePageExactly) {
  const AttentionSpec spec = SpecOf(GetParam());
  const KvLayout layout = KvLayout::Of(spec);
  const int64_t bytes = layout.element_bytes;
  std::vector<int> owners(static_cast<size_t>(layout.page_bytes() / bytes));
  const auto own = [&](int64_t slice, int64_t element) {
    const int64_t at = slice / bytes + element;
    ASSERT_TRUE(at >= 0 && at < static_cast<int64_t>(owners.size()));
    ++owners[static_cast<size_t>(at)];
  };
  for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    for (uint32_t head = 0; head < spec.num_kv_heads; ++head) {
      for (uint32_t slot = 0; slot < spec.page_size; ++slot) {
        for (uint32_t d = 0; d < spec.head_dim_qk; ++d) {
          own(layout.KeySliceOffset(layer, head), layout.KeyElement(slot, d));
        }
        for (uint32_t d = 0; d < spec.head_dim_v; ++d) {
          own(layout.ValueSliceOffset(layer, head), layout.ValueElement(slot, d));
        }
      }
    }
  }
  EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
}

TEST_P(KvLayoutTest, ASliceOfAHeadIsContiguous) {
  const KvLayout layout = KvLayout::Of(SpecOf(GetParam()));
  EXPECT_EQ(layout.ValueSliceOffset(1, 2) - layout.KeySliceOffset(1, 2), layout.key_slice_bytes());
  EXPECT_EQ(layout.KeySliceOffset(1, 2) + layout.head_bytes(), layout.page_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, KvLayoutTest,
    testing::Values(Shape{16, 64, 64, DType::kFloat32}, Shape{48, 8, 72, DType::kFloat32},
                    Shape{32, 24, 16, DType::kBFloat16}, Shape{16, 80, 128, DType::kBFloat16},
                    Shape{64, 40, 8, DType::kFloat16}, Shape{1, 64, 32, DType::kBFloat16},
                    Shape{7, 16, 8, DType::kFloat16}, Shape{24, 8, 8, DType::kFloat32}));

}  // namespace
}  // namespace attn::cpu
