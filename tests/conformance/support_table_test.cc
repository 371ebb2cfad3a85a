// What is out of range is refused by Validate or Supports, naming the field, and no store is made
// of it; what is at the end of a range is computed.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attn/attention/attention_spec.h"
#include "attn/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/expect_reference.h"

namespace attn::test {
namespace {

using ::testing::HasSubstr;

struct Variation {
  const char* name;
  const char* field;  // stands in the field that the refusal names
  std::function<void(AttentionSpec&)> apply;
};

AttentionSpec GoodSpec() { return SpecOf(8, 2, 64); }

absl::Status Check(const AttentionSpec& spec) {
  const absl::Status valid = Validate(spec);
  return valid.ok() ? CpuBackendOf(1).Supports(spec) : valid;
}

const std::vector<Variation>& OutOfRange() {
  static const auto* const variations = new std::vector<Variation>{
      {"head dim 12", "head_dim_qk", [](AttentionSpec& s) { s.head_dim_qk = 12; }},
      {"head dim 264", "head_dim_qk", [](AttentionSpec& s) { s.head_dim_qk = 264; }},
      {"head dim 0", "head_dim_qk", [](AttentionSpec& s) { s.head_dim_qk = 0; }},
      {"head dim 2^32 - 8", "head_dim_qk", [](AttentionSpec& s) { s.head_dim_qk = 4294967288u; }},
      {"v dim 12", "head_dim_v", [](AttentionSpec& s) { s.head_dim_v = 12; }},
      {"v dim 264", "head_dim_v", [](AttentionSpec& s) { s.head_dim_v = 264; }},
      {"v dim 0", "head_dim_v", [](AttentionSpec& s) { s.head_dim_v = 0; }},
      {"page 0", "page_size", [](AttentionSpec& s) { s.page_size = 0; }},
      {"page 513", "page_size", [](AttentionSpec& s) { s.page_size = 513; }},
      {"10 heads over 4", "heads",  // NVIDIA/cudnn-frontend, heads not divisible
       [](AttentionSpec& s) { s.num_q_heads = 10, s.num_kv_heads = 4; }},
      {"fewer q heads than KV heads", "heads", [](AttentionSpec& s) { s.num_q_heads = 1; }},
      {"no q heads", "num_q_heads", [](AttentionSpec& s) { s.num_q_heads = 0; }},
      {"no KV heads", "num_kv_heads", [](AttentionSpec& s) { s.num_kv_heads = 0; }},
      {"no layers", "num_layers", [](AttentionSpec& s) { s.num_layers = 0; }},
      {"NaN scale", "softmax_scale", [](AttentionSpec& s) { s.score.softmax_scale = NAN; }},
      {"infinite scale", "softmax_scale",
       [](AttentionSpec& s) { s.score.softmax_scale = -INFINITY; }},
      {"negative cap", "logit_soft_cap", [](AttentionSpec& s) { s.score.logit_soft_cap = -1; }},
      {"NaN cap", "logit_soft_cap", [](AttentionSpec& s) { s.score.logit_soft_cap = NAN; }},
      {"infinite cap", "logit_soft_cap",
       [](AttentionSpec& s) { s.score.logit_soft_cap = INFINITY; }},
      {"sinks missing", "sink_logits", [](AttentionSpec& s) { s.score.sink_logits_per_head = 2; }},
      {"sinks of one head", "sink_logits",
       [](AttentionSpec& s) {
         s.score.sink_logits_per_head = 1;
         s.score.sink_logits = {0.5f};
       }},
      {"sinks of one layer for two", "sink_logits",
       [](AttentionSpec& s) {
         s.num_layers = 2;
         s.score.sink_logits_per_head = 1;
         s.score.sink_logits.assign(8, 0.5f);
       }},
      {"sinks without a count", "sink_logits",
       [](AttentionSpec& s) { s.score.sink_logits.assign(8, 0.5f); }},
      {"NaN sink", "sink_logits",
       [](AttentionSpec& s) {
         s.score.sink_logits_per_head = 1;
         s.score.sink_logits.assign(8, 0.5f);
         s.score.sink_logits[5] = NAN;
       }},
  };
  return *variations;
}

TEST(SupportTableTest, WhatIsOutOfRangeIsRefusedByField) {
  for (const Variation& variation : OutOfRange()) {
    SCOPED_TRACE(variation.name);
    AttentionSpec spec = GoodSpec();
    variation.apply(spec);
    const absl::Status refusal = Check(spec);
    EXPECT_THAT(FieldOf(refusal), HasSubstr(variation.field)) << refusal;
    EXPECT_TRUE(ReasonOf(refusal) == Reason::kInvalid || ReasonOf(refusal) == Reason::kUnsupported)
        << refusal;
  }
}

TEST(SupportTableTest, NoStoreIsMadeOfARefusedSpec) {
  for (const Variation& variation : OutOfRange()) {
    SCOPED_TRACE(variation.name);
    AttentionSpec spec = GoodSpec();
    variation.apply(spec);
    const auto store = CpuBackendOf(1).CreateKvStore(spec, {.num_pages = 1});
    ASSERT_FALSE(store.ok());
    EXPECT_THAT(FieldOf(store.status()), HasSubstr(variation.field)) << store.status();
  }
}

TEST(SupportTableTest, AGoodSpecIsComputedAfterARefusal) {
  for (const Variation& variation : OutOfRange()) {
    AttentionSpec spec = GoodSpec();
    variation.apply(spec);
    EXPECT_FALSE(Check(spec).ok()) << variation.name;
  }
  ExpectReference(BottomRightCase(GoodSpec(), {{3, 20}}, 1));
}

TEST(SupportTableTest, EveryHeadDimOfTheRangeIsComputed) {
  for (uint32_t dim = 8; dim <= 256; dim += 8) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const AttentionSpec spec = SpecOf(2, 1, dim, dtype);
      ASSERT_TRUE(Check(spec).ok()) << Check(spec);
      ExpectReference(BottomRightCase(spec, {{1, 19}, {18, 33}}, dim));
    }
  }
}

TEST(SupportTableTest, EveryDTypeMixIsComputed) {
  const DType dtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  for (const DType activation : dtypes) {
    for (const DType kv : dtypes) {
      for (const DType out : dtypes) {
        AttentionSpec spec = SpecOf(4, 2, 40, activation);
        spec.kv_dtype = kv;
        ASSERT_TRUE(Check(spec).ok()) << Check(spec);
        AttentionCase mix = BottomRightCase(spec, {{2, 30}, {20, 300}}, 5);
        for (CaseItem& item : mix.items) item.out_dtype = out;
        ExpectReference(mix);
      }
    }
  }
}

TEST(SupportTableTest, AStoreReportsItsSpecAndSizes) {
  AttentionSpec spec = GoodSpec();
  spec.num_layers = 3;
  const auto store = CpuBackendOf(1).CreateKvStore(spec, {.num_pages = 7});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->num_pages(), 7);
  EXPECT_EQ((*store)->spec().num_layers, 3u);
  EXPECT_EQ((*store)->page_bytes(), CpuBackendOf(1).PageBytes(spec));
  const int64_t least = int64_t{3} * 16 * 2 * (64 + 64) * 4;
  EXPECT_GE((*store)->page_bytes(), least);
  EXPECT_LE((*store)->page_bytes(), 2 * least);
}

}  // namespace
}  // namespace attn::test
