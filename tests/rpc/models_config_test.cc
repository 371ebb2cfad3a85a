// The models file: good text, and errors that name the file and the place.
#include "server/rpc/models_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "attn/base/error.h"

namespace attn::test {
namespace {

using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ModelsConfigTest, ReadsEveryModel) {
  const std::string path = WriteFile("good_models.textproto", R"(
    models { name: "a" activation_dtype: DATA_TYPE_FLOAT32 num_layers: 1
             layer_groups { layers: 0 num_q_heads: 2 num_kv_heads: 1 head_dim_qk: 16 } }
    models { name: "b" })");
  const auto models = server::ReadModelsFile(path);
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].layer_groups(0).head_dim_qk(), 16u);
  EXPECT_EQ((*models)[1].name(), "b");
}

TEST(ModelsConfigTest, AnUnknownFieldIsNamedWithFileAndLine) {
  const std::string path = WriteFile("bad_models.textproto", "models {\n  nmae: \"a\"\n}\n");
  const auto models = server::ReadModelsFile(path);
  EXPECT_EQ(FieldOf(models.status()), path);
  EXPECT_THAT(models.status().message(), HasSubstr("line 2"));
  EXPECT_THAT(models.status().message(), HasSubstr("nmae"));
}

TEST(ModelsConfigTest, AFileThatIsNotThereIsNamed) {
  const auto models = server::ReadModelsFile("/no/such/file");
  EXPECT_EQ(FieldOf(models.status()), "/no/such/file");
}

}  // namespace
}  // namespace attn::test
