#include "tools/attnctl/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/attnctl/stats_maker.h"

namespace attn::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ViewsTest, NothingIsSaidInWords) {
  EXPECT_EQ(ModelsText({}), "no models\n");
  EXPECT_EQ(SequencesText({}), "no sequences\n");
  EXPECT_EQ(StatsText({}, true), "METRIC  LABELS  VALUE\n");
}

TEST(ViewsTest, AModelsGroupsStandInOneLine) {
  v1::ListModelsResponse models;
  v1::ModelInfo& model = *models.add_models();
  model.set_kv_bytes_per_token(24576);
  v1::ModelSpec& spec = *model.mutable_spec();
  spec.set_name("gemma");
  spec.set_activation_dtype(v1::DATA_TYPE_BFLOAT16);
  spec.set_num_layers(6);
  spec.set_page_size(16);
  for (int g = 0; g < 3; ++g) {
    v1::LayerGroup& group = *spec.add_layer_groups();
    group.set_num_q_heads(8);
    group.set_num_kv_heads(2);
    group.set_head_dim_qk(256);
    group.set_head_dim_v(g == 2 ? 128 : 256);
    if (g > 0) group.mutable_window()->set_left(511);
  }
  EXPECT_EQ(
      ModelsText(models),
      "MODEL  LAYERS  GROUPS  HEADS Q/KV  DIM          WINDOW   DTYPE     PAGE  BYTES/TOKEN\n"
      "gemma       6       3  8/2         256,256/128  -,511:-  bfloat16    16       24,576\n");
}

TEST(ViewsTest, OwnersCannotWriteToTheTerminal) {
  v1::ListSequencesResponse sequences;
  v1::SequenceSummary& sequence = *sequences.add_sequences();
  sequence.set_sequence_id(281474976710657);
  sequence.set_model("tiny");
  sequence.set_owner("me\x1b[2J");
  sequence.set_committed_len(7);
  sequence.set_longest_len(9);
  sequence.set_num_pages(4);
  sequence.set_lease_remaining_ms(29500);
  EXPECT_EQ(SequencesText(sequences),
            "       SEQUENCE  MODEL  OWNER      TOKENS  LONGEST LAYER  PAGES  LEASE LEFT\n"
            "281474976710657  tiny   me\\033[2J       7              9      4      29.5 s\n");
  sequences.set_next_page_token("281474976710657");
  EXPECT_THAT(SequencesText(sequences), HasSubstr("more"));
}

TEST(ViewsTest, StatsHaveTheUnitsOfTheirNamesAndNoZerosUnlessAskedFor) {
  test::StatsMaker stats;
  stats.Counter("attn_calls_total", 0)
      .Labelled({"kind"}, {"attend"}, 1234567)
      .Labelled({"kind"}, {"open"}, 0)
      .Gauge("attn_kv_live_bytes", 1536)
      .Times("attn_call_seconds", {50, 40, 10, 0}, 1.5)
      .Times("attn_queue_seconds", {0, 0, 0, 0}, 0);
  EXPECT_EQ(StatsText(stats.response, false),
            "METRIC         LABELS       VALUE\n"
            "calls_total    kind=attend  1,234,567\n"
            "kv_live_bytes               1.5 KiB\n"
            "call_seconds                100 values, mean 15 ms, p50 1 ms, p90 10 ms, p99 91 ms\n");
  EXPECT_THAT(StatsText(stats.response, true),
              AllOf(HasSubstr("kind=open"), HasSubstr("queue_seconds")));
}

TEST(ViewsTest, JsonHasTheFieldsOfTheProto) {
  v1::ListSequencesResponse sequences;
  sequences.add_sequences()->set_owner("me");
  const auto json = MessageJson(sequences);
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(*json, AllOf(HasSubstr("\"owner\": \"me\""), HasSubstr("\"committed_len\": 0"),
                           HasSubstr("\"next_page_token\": \"\""), Not(HasSubstr("committedLen"))));
}

}  // namespace
}  // namespace attn::ctl
