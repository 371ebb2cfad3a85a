// Which specs are refused, naming the field.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "attn/attention/attention_spec.h"
#include "attn/attention/cpu_backend.h"
#include "attn/base/error.h"
#include "gtest/gtest.h"

namespace attn {
namespace {

struct BadSpec {
  std::string field;
  Reason reason;
  std::function<void(AttentionSpec&)> spoil;
};

const BadSpec kBadSpecs[] = {
    {"num_layers", Reason::kInvalid, [](AttentionSpec& s) { s.num_layers = 0; }},
    {"num_q_heads", Reason::kInvalid, [](AttentionSpec& s) { s.num_q_heads = 0; }},
    {"num_kv_heads", Reason::kInvalid, [](AttentionSpec& s) { s.num_kv_heads = 0; }},
    {"num_kv_heads", Reason::kInvalid, [](AttentionSpec& s) { s.num_kv_heads = 3; }},
    {"head_dim_qk", Reason::kInvalid, [](AttentionSpec& s) { s.head_dim_qk = 0; }},
    {"head_dim_v", Reason::kInvalid, [](AttentionSpec& s) { s.head_dim_v = 0; }},
    {"page_size", Reason::kInvalid, [](AttentionSpec& s) { s.page_size = 0; }},
    {"softmax_scale", Reason::kInvalid, [](AttentionSpec& s) { s.score.softmax_scale = NAN; }},
    {"logit_soft_cap", Reason::kInvalid, [](AttentionSpec& s) { s.score.logit_soft_cap = -1; }},
    {"logit_soft_cap", Reason::kInvalid,
     [](AttentionSpec& s) { s.score.logit_soft_cap = INFINITY; }},
    {"sink_logits", Reason::kInvalid, [](AttentionSpec& s) { s.score.sink_logits = {1}; }},
    {"sink_logits", Reason::kInvalid, [](AttentionSpec& s) { s.score.sink_logits_per_head = 1; }},
    {"sink_logits[2]", Reason::kInvalid,
     [](AttentionSpec& s) {
       s.score.sink_logits_per_head = 1;
       s.score.sink_logits = {0, 0, INFINITY, 0};
     }},
    {"activation_dtype", Reason::kInvalid,
     [](AttentionSpec& s) { s.activation_dtype = static_cast<DType>(9); }},
    {"kv_dtype", Reason::kInvalid, [](AttentionSpec& s) { s.kv_dtype = static_cast<DType>(9); }},
    {"head_dim_qk", Reason::kUnsupported, [](AttentionSpec& s) { s.head_dim_qk = 12; }},
    {"head_dim_v", Reason::kUnsupported, [](AttentionSpec& s) { s.head_dim_v = 264; }},
    {"page_size", Reason::kUnsupported, [](AttentionSpec& s) { s.page_size = 513; }},
};

TEST(ValidateTest, BadSpecsAreRefusedByField) {
  std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 1}).value();
  for (const BadSpec& bad : kBadSpecs) {
    AttentionSpec spec;
    spec.num_q_heads = 4;
    spec.num_kv_heads = 2;
    ASSERT_TRUE(Validate(spec).ok() && backend->Supports(spec).ok());
    bad.spoil(spec);
    EXPECT_EQ(ReasonOf(Validate(spec)),
              bad.reason == Reason::kInvalid ? Reason::kInvalid : Reason::kOk)
        << bad.field;
    EXPECT_EQ(ReasonOf(backend->Supports(spec)), bad.reason) << bad.field;
    EXPECT_EQ(FieldOf(backend->Supports(spec)), bad.field);
  }
}

TEST(ValidateTest, ThreadCountsOutOfRangeAreRefused) {
  EXPECT_EQ(ReasonOf(CreateCpuBackend({.num_threads = -1}).status()), Reason::kInvalid);
  EXPECT_EQ(ReasonOf(CreateCpuBackend({.num_threads = 5000}).status()), Reason::kInvalid);
  EXPECT_TRUE(CreateCpuBackend({}).ok());
}

TEST(ValidateTest, StoresWithoutPagesAreRefused) {
  std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 1}).value();
  EXPECT_EQ(FieldOf(backend->CreateKvStore(AttentionSpec(), {.num_pages = 0}).status()),
            "num_pages");
}

}  // namespace
}  // namespace attn
