// The metrics as users know them: their names, types and labels, that docs/metrics.md has them all,
// and that a scripted run gives exactly the numbers that it must.
#include "server/core/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// A name that changes here breaks what users have built on it.
const std::vector<std::string>& ExpectedFamilies() {
  static const auto* const families = new std::vector<std::string>{
      "gauge attn_server_info{version,device}",
      "gauge attn_serving{}",
      "gauge attn_draining{}",
      "gauge attn_device_lost{}",
      "gauge attn_open_streams{}",
      "gauge attn_calls_in_flight{}",
      "counter attn_received_bytes_total{}",
      "counter attn_sent_bytes_total{}",
      "gauge attn_queue_items{}",
      "gauge attn_queue_max_items{}",
      "gauge attn_queue_bytes{}",
      "gauge attn_queue_max_bytes{}",
      "histogram attn_queue_seconds{}",
      "histogram attn_compute_seconds{}",
      "histogram attn_call_seconds{}",
      "counter attn_calls_total{kind}",
      "counter attn_items_total{}",
      "counter attn_failed_items_total{}",
      "counter attn_refused_calls_total{at,reason}",
      "counter attn_refused_items_total{at,reason}",
      "counter attn_appended_tokens_total{}",
      "counter attn_replayed_items_total{}",
      "counter attn_prefill_chunks_total{}",
      "histogram attn_launch_items{}",
      "histogram attn_launch_layers{}",
      "histogram attn_launch_clients{}",
      "histogram attn_launch_seconds{}",
      "counter attn_failed_launches_total{}",
      "counter attn_multi_client_multi_layer_launches_total{}",
      "counter attn_launched_calls_total{}",
      "counter attn_launched_q_rows_total{}",
      "counter attn_steps_total{}",
      "counter attn_schedule_seconds_total{}",
      "gauge attn_longest_step_seconds{}",
      "gauge attn_models{}",
      "gauge attn_open_sequences{}",
      "gauge attn_max_sequences{}",
      "counter attn_opened_sequences_total{}",
      "counter attn_forked_sequences_total{}",
      "counter attn_expired_sequences_total{}",
      "counter attn_expired_owners_total{}",
      "gauge attn_pages{state}",
      "counter attn_page_copies_total{}",
      "gauge attn_kv_budget_bytes{}",
      "gauge attn_kv_backed_bytes{}",
      "gauge attn_kv_live_bytes{}",
  };
  return *families;
}

class MetricTableTest : public ::testing::Test {
 protected:
  std::vector<MetricFamily> Take() {
    return Snapshot({.engine = f.engine.get(),
                     .registry = &f.registry,
                     .border = &border,
                     .open_streams = 3,
                     .calls_in_flight = 4,
                     .serving = true,
                     .version = "1.2.3"});
  }
  // "name{a,b}" of a sample without a distribution, and its value.
  std::map<std::string, double> Values() {
    std::map<std::string, double> values;
    for (const MetricFamily& family : Take()) {
      for (const MetricSample& sample : family.samples) {
        if (family.type == MetricType::kHistogram) continue;
        values[absl::StrCat(family.name, "{", absl::StrJoin(sample.label_values, ","), "}")] =
            sample.value;
      }
    }
    return values;
  }
  MetricDistribution DistributionOf(const std::string& name) {
    for (const MetricFamily& family : Take()) {
      if (family.name == name) return family.samples.at(0).distribution;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

  EngineFixture f;
  BorderStats border;
};

TEST_F(MetricTableTest, NamesTypesAndLabelsAreThoseThatUsersKnow) {
  std::vector<std::string> families;
  for (const MetricFamily& family : Take()) {
    families.push_back(absl::StrCat(NameOf(family.type), " ", family.name, "{",
                                    absl::StrJoin(family.label_names, ","), "}"));
  }
  EXPECT_THAT(families, ElementsAreArray(ExpectedFamilies()));
}

TEST_F(MetricTableTest, EveryMetricHasHelpSamplesAndANameOfTheRightForm) {
  for (const MetricFamily& family : Take()) {
    SCOPED_TRACE(family.name);
    EXPECT_TRUE(absl::EndsWith(family.help, ".")) << family.help;
    EXPECT_TRUE(absl::StartsWith(family.name, "attn_"));
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == MetricType::kCounter);
    EXPECT_FALSE(family.samples.empty());
    for (const MetricSample& sample : family.samples) {
      EXPECT_EQ(sample.label_values.size(), family.label_names.size());
      const MetricDistribution& shown = sample.distribution;
      if (family.type != MetricType::kHistogram) continue;
      ASSERT_EQ(shown.cumulative_counts.size(), shown.upper_bounds.size() + 1);
      EXPECT_TRUE(std::is_sorted(shown.upper_bounds.begin(), shown.upper_bounds.end()));
    }
  }
}

// Rows of the document look like "| `name` | type | `label`, `label` | help |".
TEST_F(MetricTableTest, TheDocumentHasExactlyTheRowsOfTheTable) {
  std::vector<std::string> expected;
  for (const MetricFamily& family : Take()) {
    const auto quote = [](std::string* out, const std::string& label) {
      absl::StrAppend(out, "`", label, "`");
    };
    expected.push_back(absl::StrCat("| `", family.name, "` | ", NameOf(family.type), " | ",
                                    absl::StrJoin(family.label_names, ", ", quote), " | ",
                                    family.help, " |"));
  }
  std::ifstream file(ATTN_SOURCE_DIR "/docs/metrics.md");
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    // Other tables have expressions in their first column.
    const bool names_a_metric = line.find('`', 3) < line.find(' ', 3);
    if (absl::StartsWith(line, "| `attn_") && names_a_metric) rows.push_back(line);
  }
  EXPECT_EQ(absl::StrJoin(rows, "\n"), absl::StrJoin(expected, "\n"));
}

TEST_F(MetricTableTest, AScriptedRunGivesExactNumbers) {
  const uint64_t s = f.Open();
  const uint64_t t = f.Open();
  const EngineFixture::Item append = {.seq = s, .tokens = {1, 2, 3, 4, 5}, .append_token = 7};
  EngineFixture::Item other_layer = append;
  other_layer.layer = 1;
  f.RunAttend({append, other_layer});
  f.RunAttend({append});  // a retry
  f.RunAttend({{.seq = t, .expected_len = 9, .tokens = {1}}});
  ForkCall fork;
  fork.items.resize(2);
  fork.items[0].parent = fork.items[1].parent = {s};
  fork.items[0].at_len = 3;
  fork.items[0].num_children = 2;
  fork.items[1].at_len = 300;  // beyond its end
  fork.items[1].num_children = 1;
  f.Run(f.Make(fork));
  f.Run(f.Make(RemoveModelCall{"no such model"}));
  EXPECT_EQ(f.engine->queue().Push(f.Make(RenewCall{.owner = "owner", .lease = kSecond})),
            absl::OkStatus());
  f.engine->Stop();  // publishes what the cache holds
  const std::map<std::string, double> values = Values();
  const auto value = [&values](const std::string& name) { return values.at(name); };
  EXPECT_EQ(value("attn_opened_sequences_total{}"), 2);
  EXPECT_EQ(value("attn_forked_sequences_total{}"), 2);
  EXPECT_EQ(value("attn_open_sequences{}"), 4);
  EXPECT_EQ(value("attn_appended_tokens_total{}"), 10) << "five tokens in two layers, once";
  EXPECT_EQ(value("attn_replayed_items_total{}"), 1);
  EXPECT_EQ(value("attn_items_total{}"), 4);
  EXPECT_EQ(value("attn_failed_items_total{}"), 1);
  EXPECT_EQ(value("attn_refused_items_total{engine,LENGTH_MISMATCH}"), 1);
  EXPECT_EQ(value("attn_refused_items_total{engine,INVALID}"), 1) << "the fork beyond the end";
  EXPECT_EQ(value("attn_refused_calls_total{engine,UNKNOWN_MODEL}"), 1);
  EXPECT_EQ(value("attn_calls_total{attend}"), 3);
  EXPECT_EQ(value("attn_calls_total{open}"), 2);
  EXPECT_EQ(value("attn_calls_total{fork}"), 1);
  EXPECT_EQ(value("attn_calls_total{remove_model}"), 1);
  EXPECT_EQ(value("attn_calls_total{renew}"), 1);
  EXPECT_EQ(value("attn_models{}"), 1);
  EXPECT_EQ(value("attn_pages{live}"), 2) << "five tokens on pages of four, shared by the forks";
  EXPECT_EQ(value("attn_queue_items{}"), 0);
  EXPECT_EQ(value("attn_open_streams{}"), 3);
  EXPECT_EQ(value("attn_calls_in_flight{}"), 4);
  EXPECT_EQ(value("attn_server_info{1.2.3," + f.engine->device_name() + "}"), 1);
  const MetricDistribution items = DistributionOf("attn_launch_items");
  EXPECT_EQ(items.sum, 3);
  EXPECT_THAT(items.cumulative_counts, Contains(2)) << "launches";
  EXPECT_EQ(items.cumulative_counts[0], 1) << "with one item";
}

TEST_F(MetricTableTest, TimesOfACallAreThoseOfItsAnswer) {
  const uint64_t s = f.Open();
  f.device->clock = &f.clock;
  f.device->nanos_per_flop = 1000;
  auto call = f.Attend({{.seq = s, .tokens = {1, 2}}});
  const Nanos before = f.clock.Now();
  f.Push(std::move(call));
  f.clock.Advance(3 * kMillisecond);
  f.Drain();
  const auto took = static_cast<double>(f.clock.Now() - before) / kSecond;
  const MetricDistribution queue = DistributionOf("attn_queue_seconds");
  EXPECT_DOUBLE_EQ(queue.sum, 0.003);
  EXPECT_DOUBLE_EQ(DistributionOf("attn_call_seconds").sum, took);
  constexpr double kNanosecond = 1e-9;
  EXPECT_NEAR(DistributionOf("attn_compute_seconds").sum, took - 0.003, kNanosecond / 2);
  EXPECT_NEAR(DistributionOf("attn_launch_seconds").sum, took - 0.003, kNanosecond / 2);
  for (size_t i = 0; i < queue.upper_bounds.size(); ++i) {
    EXPECT_EQ(queue.cumulative_counts[i], queue.upper_bounds[i] >= 0.003) << i;
  }
}

TEST(HistogramTest, ABoundBelongsToItsRangeAndWhatIsAboveAllToTheLast) {
  constexpr std::array<uint64_t, 3> kBounds = {10, 20, 40};
  Histogram histogram(kBounds);
  for (const uint64_t value : {0, 10, 11, 20, 40, 41, 1000}) histogram.Observe(value);
  EXPECT_THAT(histogram.CumulativeCounts(), ElementsAre(2, 4, 5, 7));
  EXPECT_EQ(histogram.count(), 7u);
  EXPECT_EQ(histogram.sum(), 1122u);
}

TEST(HistogramTest, AReaderMeanwhileSeesCountsThatNeverFall) {
  Histogram histogram(kTimeBounds);
  constexpr uint64_t kNumValues = 200'000;
  std::thread writer([&histogram] {
    for (uint64_t i = 0; i < kNumValues; ++i) histogram.Observe(i * 37 % (2 * kMillisecond));
  });
  for (uint64_t last = 0; last < kNumValues;) {
    const std::vector<uint64_t> counts = histogram.CumulativeCounts();
    ASSERT_TRUE(std::is_sorted(counts.begin(), counts.end()));
    ASSERT_GE(counts.back(), last);
    last = counts.back();
  }
  writer.join();
}

TEST(HistogramTest, TimesBeginAtFiftyMicroseconds) {
  EXPECT_EQ(kTimeBounds.front(), uint64_t{50 * kMicrosecond});
}

}  // namespace
}  // namespace attn::server
