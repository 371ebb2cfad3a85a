// Model specs: defaults, every refusal by field, and the fingerprint.
#include "server/rpc/model_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "server/rpc/model_fingerprint.h"
#include "tests/rpc/codec_world.h"

namespace attn::test {
namespace {

using server::ModelDefinition;
using ::testing::HasSubstr;
using Spec = v1::ModelSpec;

class ModelCodecTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelDefinition> Decode(Spec spec) {
    return DecodeModelSpec(std::move(spec), world_.limits, world_.registry, SupportsAll, "spec");
  }
  template <typename Spoil>
  void ExpectRefused(Spoil spoil, Reason reason, const std::string& field,
                     const std::string& part) {
    Spec spec = SmallSpec();
    spoil(&spec);
    const absl::Status status = Decode(spec).status();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(status.message(), HasSubstr(part));
  }

  CodecWorld world_;
};

v1::LayerGroup* Group(Spec* spec) { return spec->mutable_layer_groups(0); }

TEST_F(ModelCodecTest, DefaultsAreFilledInAndSentBack) {
  const absl::StatusOr<ModelDefinition> definition = Decode(SmallSpec());
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_EQ(definition->page_size, server::kDefaultPageSize);
  ASSERT_EQ(definition->groups.size(), 2u);
  const AttentionSpec& spec = definition->groups[1].spec;
  EXPECT_EQ(spec.head_dim_v, CodecWorld::kHeadDim);
  EXPECT_FLOAT_EQ(spec.score.softmax_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_EQ(spec.score.window.left, 4u);
  EXPECT_FALSE(spec.score.window.right.has_value());
  Spec filled;
  ASSERT_TRUE(filled.ParseFromString(definition->source));
  EXPECT_EQ(filled.kv_dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(filled.page_size(), server::kDefaultPageSize);
  EXPECT_EQ(filled.layer_groups(0).head_dim_v(), CodecWorld::kHeadDim);
  EXPECT_TRUE(filled.layer_groups(0).has_softmax_scale());
}

TEST_F(ModelCodecTest, AnExplicitScaleOfZeroIsKept) {
  Spec spec = SmallSpec();
  Group(&spec)->set_softmax_scale(0);
  const absl::StatusOr<ModelDefinition> definition = Decode(spec);
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_EQ(definition->groups[0].spec.score.softmax_scale, 0.0f);
}

TEST_F(ModelCodecTest, RefusesNamesCountsAndLayers) {
  const auto invalid = Reason::kInvalid;
  ExpectRefused([](Spec* s) { s->clear_name(); }, invalid, "spec.name", "want 1 to 128");
  ExpectRefused([](Spec* s) { s->set_name("a b"); }, invalid, "spec.name", "got \"a b\"");
  ExpectRefused([](Spec* s) { s->set_name(std::string(129, 'n')); }, invalid, "spec.name",
                "of 129 bytes");
  ExpectRefused([](Spec* s) { s->set_num_layers(0); }, invalid, "spec.num_layers", "got 0");
  ExpectRefused([](Spec* s) { s->set_num_layers(4294967295u); }, invalid, "spec.num_layers",
                "got 4294967295, want 1 to 4096");
  ExpectRefused([](Spec* s) { s->set_page_size(4294967295u); }, invalid, "spec.page_size",
                "got 4294967295, want 0 to 512");
  ExpectRefused([](Spec* s) { s->clear_layer_groups(); }, invalid, "spec.layer_groups",
                "got 0 layers in all groups, want num_layers 2");
  ExpectRefused([](Spec* s) { Group(s)->add_layers(1); }, invalid, "spec.layer_groups[1].layers[0]",
                "got 1 again");
  ExpectRefused([](Spec* s) { Group(s)->set_layers(0, 2); }, invalid,
                "spec.layer_groups[0].layers[0]", "got 2, want 0 to 1");
  ExpectRefused([](Spec* s) { Group(s)->clear_layers(); }, invalid, "spec.layer_groups[0].layers",
                "got 0 entries");
  ExpectRefused([](Spec* s) { s->set_content_tag(std::string(5000, 't')); }, invalid,
                "spec.content_tag", "got 5000");
}

TEST_F(ModelCodecTest, ARefusalOfTheDeviceNamesTheFieldOfTheModelOrOfTheGroup) {
  for (const auto& [field, path] : {std::pair("page_size", "spec.page_size"),
                                    {"activation_dtype", "spec.activation_dtype"},
                                    {"kv_dtype", "spec.kv_dtype"},
                                    {"head_dim_v", "spec.layer_groups[0].head_dim_v"}}) {
    const auto refuses = [field = field](const AttentionSpec&) {
      return MakeError(Reason::kUnsupported, field, "got 7, want 8");
    };
    const absl::Status status =
        DecodeModelSpec(SmallSpec(), world_.limits, world_.registry, refuses, "spec").status();
    EXPECT_EQ(ReasonOf(status), Reason::kUnsupported);
    EXPECT_EQ(FieldOf(status), path);
    EXPECT_EQ(status.message(), absl::StrCat(path, ": got 7, want 8"));
  }
}

TEST_F(ModelCodecTest, RefusesHeadsDimsAndScores) {
  const auto invalid = Reason::kInvalid;
  ExpectRefused([](Spec* s) { Group(s)->set_num_q_heads(0); }, invalid,
                "spec.layer_groups[0].num_q_heads", "got 0, want 1 to 65536");
  ExpectRefused([](Spec* s) { Group(s)->set_num_kv_heads(3); }, invalid,
                "spec.layer_groups[0].num_kv_heads", "got 3, want a divisor of num_q_heads 4");
  ExpectRefused([](Spec* s) { Group(s)->set_head_dim_qk(4294967295u); }, invalid,
                "spec.layer_groups[0].head_dim_qk", "got 4294967295");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused([nan](Spec* s) { Group(s)->set_softmax_scale(nan); }, invalid,
                "spec.layer_groups[0].softmax_scale", "finite");
  ExpectRefused([](Spec* s) { Group(s)->set_logit_soft_cap(-1); }, invalid,
                "spec.layer_groups[0].logit_soft_cap", "got -1");
  ExpectRefused([](Spec* s) { Group(s)->set_sink_logits_per_head(2); }, invalid,
                "spec.layer_groups[0].sink_logits", "got 0 entries, want 8");
  ExpectRefused([](Spec* s) { Group(s)->set_sink_logits_per_head(4294967295u); }, invalid,
                "spec.layer_groups[0].sink_logits_per_head", "want 0 to 1024");
  ExpectRefused(
      [nan](Spec* s) {
        Group(s)->set_sink_logits_per_head(1);
        for (int i = 0; i < 4; ++i) Group(s)->add_sink_logits(i == 2 ? nan : 0);
      },
      invalid, "spec.layer_groups[0].sink_logits[2]", "finite");
}

TEST_F(ModelCodecTest, RefusesFeaturesThatAreNotBuiltByName) {
  const auto unsupported = Reason::kUnsupported;
  ExpectRefused([](Spec* s) { Group(s)->add_alibi_slopes(1); }, unsupported,
                "spec.layer_groups[0].alibi_slopes", "does not have the feature");
  ExpectRefused([](Spec* s) { Group(s)->add_kv_source_layers(1); }, unsupported,
                "spec.layer_groups[0].kv_source_layers", "does not have the feature");
  ExpectRefused([](Spec* s) { Group(s)->mutable_window()->set_always_visible_prefix(4); },
                unsupported, "spec.layer_groups[0].window.always_visible_prefix", "feature");
  ExpectRefused([](Spec* s) { Group(s)->mutable_window()->set_chunk_len(4); }, unsupported,
                "spec.layer_groups[0].window.chunk_len", "feature");
  ExpectRefused([](Spec* s) { s->set_kv_dtype(v1::DATA_TYPE_INT8); }, unsupported, "spec.kv_dtype",
                "got DATA_TYPE_INT8");
  ExpectRefused([](Spec* s) { s->set_kv_dtype(v1::DATA_TYPE_FLOAT8_E4M3); }, unsupported,
                "spec.kv_dtype", "got DATA_TYPE_FLOAT8_E4M3");
  ExpectRefused([](Spec* s) { s->set_activation_dtype(static_cast<v1::DataType>(77)); },
                unsupported, "spec.activation_dtype", "got 77");
  ExpectRefused([](Spec* s) { s->clear_activation_dtype(); }, Reason::kInvalid,
                "spec.activation_dtype", "got DATA_TYPE_UNSPECIFIED");
  ExpectRefused(
      [](Spec* s) {
        v1::Window* window = Group(s)->mutable_window();
        window->GetReflection()->MutableUnknownFields(window)->AddVarint(5, 1);
      },
      unsupported, "spec.layer_groups[0].window.5", "field number 5");
}

TEST_F(ModelCodecTest, ABackendsRefusalNamesTheGroup) {
  const auto supports = [](const AttentionSpec&) {
    return MakeError(Reason::kUnsupported, "head_dim_qk", "got 8, want 16");
  };
  const absl::Status status =
      DecodeModelSpec(SmallSpec(), world_.limits, world_.registry, supports, "spec").status();
  EXPECT_EQ(FieldOf(status), "spec.layer_groups[0].head_dim_qk");
  EXPECT_EQ(ReasonOf(status), Reason::kUnsupported);
  EXPECT_EQ(status.message(), "spec.layer_groups[0].head_dim_qk: got 8, want 16");
}

TEST_F(ModelCodecTest, TheFingerprintIsThatOfTheDocumentedFormAndLeavesThePageSizeOut) {
  Spec spec;
  spec.set_name("m");
  spec.set_activation_dtype(v1::DATA_TYPE_BFLOAT16);
  spec.set_num_layers(1);
  v1::LayerGroup* group = spec.add_layer_groups();
  group->add_layers(0);
  group->set_num_q_heads(2);
  group->set_num_kv_heads(1);
  group->set_head_dim_qk(16);
  group->set_softmax_scale(0.25f);
  const absl::StatusOr<ModelDefinition> definition = Decode(spec);
  ASSERT_TRUE(definition.ok()) << definition.status();
  Spec filled;
  ASSERT_TRUE(filled.ParseFromString(definition->source));
  const std::string form = "13000000" +
                           absl::BytesToHexString("attn.v1.ModelSpec/1") +  // length, text
                           "01000000" + absl::BytesToHexString("m") +       // name
                           "03000000"
                           "03000000"  // dtypes
                           "01000000"  // num_layers
                           "00000000"  // content_tag
                           "01000000"  // groups
                           "01000000"
                           "00000000"  // layers
                           "02000000"
                           "01000000"
                           "10000000"
                           "10000000"  // heads, dims
                           "0000803e"
                           "00000000"  // scale 0.25, cap
                           "0000000000000000"
                           "0000000000000000"  // window left, right
                           "00000000"
                           "00000000"   // sinks
                           "00000000";  // window_slack
  EXPECT_EQ(absl::BytesToHexString(server::CanonicalForm(filled)), form);
  // From `printf … | xxd -r -p | sha256sum` over the form above.
  EXPECT_EQ(absl::BytesToHexString(definition->fingerprint),
            "689b75f516f07cb1ecc997821cbea4347b77060310199194a789da6135ea068a");

  spec.set_page_size(64);
  EXPECT_EQ(Decode(spec)->fingerprint, definition->fingerprint);
  spec.set_content_tag("other weights");
  EXPECT_NE(Decode(spec)->fingerprint, definition->fingerprint);
}

TEST_F(ModelCodecTest, TheServersChoiceOfPageSizeIsThatOfTheKnownModel) {
  Spec spec = SmallSpec();
  spec.set_name("chosen");
  spec.set_page_size(64);
  auto model = std::make_shared<server::Model>();
  model->definition = *Decode(spec);
  model->slot = ModelSlot(7);
  world_.registry.Add(model);
  spec.set_page_size(0);
  EXPECT_EQ(Decode(spec)->page_size, 64u);
}

}  // namespace
}  // namespace attn::test
