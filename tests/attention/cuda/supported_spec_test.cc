// What the CUDA backend refuses, by name, and what it takes.
#include "attention/cuda/backend/supported_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attn/attention/cuda_backend.h"
#include "attn/base/error.h"

namespace attn::cuda {
namespace {

AttentionSpec GoodSpec() {
  AttentionSpec spec;
  spec.num_q_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim_qk = spec.head_dim_v = 128;
  spec.activation_dtype = spec.kv_dtype = DType::kBFloat16;
  return spec;
}

struct Variation {
  const char* field;
  const char* supported;
  std::function<void(AttentionSpec&)> apply;
};

TEST(SupportedSpecTest, EachFieldThatIsNotComputedIsNamedWithWhatIs) {
  const std::vector<Variation> variations = {
      {"head_dim_qk", "128", [](AttentionSpec& s) { s.head_dim_qk = 64; }},
      {"head_dim_v", "128", [](AttentionSpec& s) { s.head_dim_v = 256; }},
      {"activation_dtype", "bfloat16",
       [](AttentionSpec& s) { s.activation_dtype = DType::kFloat32; }},
      {"kv_dtype", "bfloat16", [](AttentionSpec& s) { s.kv_dtype = DType::kFloat16; }},
      {"page_size", "65536", [](AttentionSpec& s) { s.page_size = 65537; }},
      {"num_q_heads", "1024", [](AttentionSpec& s) { s.num_q_heads = 1032; }},
      {"num_layers", "4096", [](AttentionSpec& s) { s.num_layers = 5000; }},
      {"num_kv_heads", "128", [](AttentionSpec& s) { s.num_q_heads = 256, s.num_kv_heads = 1; }},
  };
  ASSERT_TRUE(CheckSupported(GoodSpec()).ok());
  for (const Variation& variation : variations) {
    AttentionSpec spec = GoodSpec();
    variation.apply(spec);
    const absl::Status refused = CheckSupported(spec);
    EXPECT_EQ(ReasonOf(refused), Reason::kUnsupported) << refused;
    EXPECT_EQ(FieldOf(refused), variation.field) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(variation.supported));
  }
}

TEST(SupportedSpecTest, VariantsOfTheScoreAndAnyPageSizeAreTaken) {
  AttentionSpec spec = GoodSpec();
  spec.num_layers = 2;
  spec.score.logit_soft_cap = 30;
  spec.score.window.left = 1023;
  spec.score.softmax_scale = -0.5f;
  spec.score.sink_logits_per_head = 1;
  spec.score.sink_logits.assign(64, 0.5f);
  for (const uint32_t page_size : {1u, 5u, 16u, 64u, 512u, 8192u}) {
    spec.page_size = page_size;
    EXPECT_TRUE(CheckSupported(spec).ok()) << CheckSupported(spec);
  }
}

TEST(CudaBackendTest, ADeviceThatIsNotThereIsRefusedByField) {
  const absl::Status refused = CreateCudaBackend({.device = 1000}).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kUnsupported) << refused;
  EXPECT_EQ(FieldOf(refused), "device");
  EXPECT_EQ(FieldOf(CreateCudaBackend({.staging_bytes = 5}).status()), "staging_bytes");
  EXPECT_EQ(FieldOf(CreateCudaBackend({.copy_threads = 65}).status()), "copy_threads");
}

}  // namespace
}  // namespace attn::cuda
