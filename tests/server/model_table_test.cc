// Declaring and removing models through the engine.
#include <gtest/gtest.h>

#include <string>

#include "server/core/model_table.h"
#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

class ModelTableTest : public ::testing::Test {
 protected:
  const Call& Declare(const ModelDefinition& definition) {
    return f.Run(f.Make(DeclareModelCall{definition}));
  }
  EngineFixture f{{.num_layers = 4, .num_groups = 2}};
  ModelDefinition base = FixtureModel(f.options, "model");
};

TEST_F(ModelTableTest, AnEqualDeclarationReturnsTheExistingModel) {
  const Call& call = Declare(base);
  ASSERT_TRUE(call.status.ok()) << call.status;
  EXPECT_TRUE(std::get<DeclareModelResult>(call.result).already_declared);
  EXPECT_EQ(std::get<DeclareModelResult>(call.result).model, f.model);
  EXPECT_EQ(f.device->num_stores, 2);
}

TEST_F(ModelTableTest, ADifferenceIsNamed) {
  const auto field_of = [&](auto change) {
    ModelDefinition other = base;
    change(other);
    const Call& call = Declare(other);
    EXPECT_EQ(ReasonOf(call.status), Reason::kModelExists);
    return FieldOf(call.status);
  };
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.groups[1].spec.num_q_heads = 2; }),
            "spec.layer_groups[1].num_q_heads");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.groups[0].spec.score.window.left = 3; }),
            "spec.layer_groups[0].window.left");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.groups[0].window_slack = 3; }),
            "spec.layer_groups[0].window_slack");
  EXPECT_EQ(field_of([](ModelDefinition& m) { std::swap(m.groups[0].layers, m.groups[1].layers); }),
            "spec.layer_groups[0].layers");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.content_tag = "x"; }), "spec.content_tag");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.page_size = 8; }), "spec.page_size");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.num_layers = 5; }), "spec.num_layers");
  EXPECT_EQ(field_of([](ModelDefinition& m) { m.fingerprint = "x"; }), "spec");
}

TEST_F(ModelTableTest, ASpecTheBackendDoesNotSupportIsRefusedWithItsField) {
  ModelDefinition other = FixtureModel(f.options, "capped");
  other.groups[1].spec.score.logit_soft_cap = 30;
  const Call& call = Declare(other);
  EXPECT_EQ(ReasonOf(call.status), Reason::kUnsupported);
  EXPECT_EQ(FieldOf(call.status), "spec.layer_groups[1].logit_soft_cap");
  EXPECT_EQ(call.status.message(), "spec.layer_groups[1].logit_soft_cap: got a soft cap, want 0");
  EXPECT_EQ(f.registry.FindByName("capped"), nullptr);
  EXPECT_EQ(f.device->num_stores, 2);
}

TEST_F(ModelTableTest, EveryLayerStandsInExactlyOneGroup) {
  ModelDefinition twice = FixtureModel(f.options, "twice");
  twice.groups[0].layers[1] = 1;
  EXPECT_EQ(FieldOf(Declare(twice).status), "spec.layer_groups[1].layers");
  ModelDefinition beyond = FixtureModel(f.options, "beyond");
  beyond.groups[1].layers[1] = 4;
  EXPECT_EQ(FieldOf(Declare(beyond).status), "spec.layer_groups[1].layers");
  ModelDefinition missing = FixtureModel(f.options, "missing");
  missing.num_layers = 5;
  EXPECT_EQ(ReasonOf(Declare(missing).status), Reason::kInvalid);
}

TEST_F(ModelTableTest, ModelsKnowTheirLayersAndBytes) {
  EXPECT_EQ(f.model->group_of_layer, (std::vector<uint32_t>{0, 1, 0, 1}));
  EXPECT_EQ(f.model->index_in_group, (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(f.model->kv_bytes_per_token, 4u * 8 * 4);
}

TEST_F(ModelTableTest, AModelInUseStays) {
  const uint64_t s = f.Open();
  EXPECT_EQ(ReasonOf(f.Run(f.Make(RemoveModelCall{"model"})).status), Reason::kModelInUse);
  f.RunAttend({{.seq = s, .layer = 1, .tokens = {1}}});
  f.Run(f.Make(CloseCall{.sequences = {{s}}}));
  EXPECT_TRUE(f.Run(f.Make(RemoveModelCall{"model"})).status.ok());
  EXPECT_EQ(f.registry.FindByName("model"), nullptr);
  EXPECT_EQ(f.device->num_stores, 0);
  EXPECT_EQ(f.device->num_committed_pages, 0) << "slabs went back";
  EXPECT_EQ(ReasonOf(f.Run(f.Make(RemoveModelCall{"model"})).status), Reason::kUnknownModel);
}

TEST_F(ModelTableTest, AnOpenForARemovedModelIsRefused) {
  OpenCall open;
  open.model = f.model;
  open.owner = "me";
  open.lease = kSecond;
  open.items.resize(1);
  EXPECT_TRUE(f.Run(f.Make(RemoveModelCall{"model"})).status.ok());
  EXPECT_EQ(ReasonOf(f.Run(f.Make(open)).status), Reason::kUnknownModel);
  Declare(base);
  EXPECT_EQ(ReasonOf(f.Run(f.Make(open)).status), Reason::kUnknownModel) << "it is another model";
}

TEST_F(ModelTableTest, TheRegistryListsByName) {
  Declare(FixtureModel(f.options, "b"));
  Declare(FixtureModel(f.options, "a"));
  const auto names = [&](const std::string& after, size_t max) {
    std::string all;
    for (const ModelPtr& model : f.registry.List(after, max)) all += model->definition.name + " ";
    return all;
  };
  EXPECT_EQ(names("", 10), "a b model ");
  EXPECT_EQ(names("a", 1), "b ");
  EXPECT_EQ(f.registry.FindBySlot(f.model->slot), f.model);
  EXPECT_NE(f.registry.FindByName("a")->slot, f.registry.FindByName("b")->slot);
}

TEST_F(ModelTableTest, GroupsDueAtOnceAreSeveralLaunchesInOneStep) {
  const uint64_t s = f.Open();
  f.device->records.clear();
  f.Push(f.Attend({{.seq = s, .layer = 0, .tokens = {1}},
                   {.seq = s, .layer = 1, .tokens = {1}},
                   {.seq = s, .layer = 2, .tokens = {1}},
                   {.seq = s, .layer = 3, .tokens = {1}}}));
  f.engine->StepByHand();
  ASSERT_EQ(f.device->records.size(), 2u);
  EXPECT_EQ(f.device->records[0].rows.size(), 2u);
  EXPECT_EQ(f.device->records[1].rows.size(), 2u);
  EXPECT_EQ(f.engine->stats().launch_layers.sum(), 4u);
}

}  // namespace
}  // namespace attn::server
