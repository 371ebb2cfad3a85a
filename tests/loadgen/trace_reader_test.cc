// Traces: the two formats, and lines that are none.
#include "tools/loadgen/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "attn/base/error.h"
#include "tools/loadgen/arrival_plan.h"

namespace attn::loadgen {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<TraceRequest>> Azure(const std::string& lines) {
  std::istringstream in("TIMESTAMP,ContextTokens,GeneratedTokens\n" + lines);
  return ReadAzureTrace(in);
}

absl::StatusOr<std::vector<TraceRequest>> Mooncake(const std::string& lines) {
  std::istringstream in(lines);
  return ReadMooncakeTrace(in);
}

TEST(TraceReaderTest, AzureLinesGiveArrivalsFromTheFirstAndLengths) {
  const auto trace = Azure(
      "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\n"
      "2023-11-16 18:16:00,1,1");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 3u);
  EXPECT_EQ((*trace)[0].arrival, 0);
  EXPECT_EQ((*trace)[1].arrival, 4'314'579'000);
  EXPECT_EQ((*trace)[2].arrival, 13'319'410'000);
  EXPECT_EQ((*trace)[1].context_len, 396u);
  EXPECT_EQ((*trace)[1].generated_len, 109u);
}

TEST(TraceReaderTest, AzureLinesThatAreNoneAreNamed) {
  const std::string good = "2023-11-16 18:15:46.68,374,44\n";
  for (const std::string bad :
       {"2023-11-16 18:15:46.68,374", "2023-11-16 18:15:46.68,374,44,1", "soon,374,44",
        "2023-11-16 18:15:46.68,-1,44", "2023-11-16 18:15:46.68,0,44",
        "2023-11-16 18:15:46.68,374,4294967296", "2023-11-16 18:15:46.68,3x4,44"}) {
    const auto trace = Azure(good + bad);
    EXPECT_EQ(ReasonOf(trace.status()), Reason::kInvalid) << bad;
    EXPECT_THAT(trace.status().message(), HasSubstr("line 3")) << bad;
  }
  std::istringstream other_header("time,in,out\n" + good);
  EXPECT_FALSE(ReadAzureTrace(other_header).ok());
  EXPECT_FALSE(Azure("").ok()) << "a trace without requests";
}

TEST(TraceReaderTest, MooncakeLinesGiveMillisecondsAndLengths) {
  const auto trace = Mooncake(
      "{\"timestamp\": 3000, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, "
      "1]}\n"
      "\n{\"output_length\":7,\"timestamp\":1000.5,\"input_length\":2}\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].context_len, 2u) << "sorted by arrival";
  EXPECT_EQ((*trace)[0].generated_len, 7u);
  EXPECT_EQ((*trace)[1].arrival, 1'999'500'000);
  EXPECT_EQ((*trace)[1].context_len, 6758u);
}

TEST(TraceReaderTest, MooncakeLinesThatAreNoneAreNamed) {
  for (const std::string bad :
       {"3000, 6758, 500", "{\"timestamp\": 1, \"input_length\": 5}",
        "{\"timestamp\": -1, \"input_length\": 5, \"output_length\": 5}",
        "{\"timestamp\": 1, \"input_length\": \"5\", \"output_length\": 5}",
        "{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 0}",
        "{\"timestamp\": nan, \"input_length\": 5, \"output_length\": 1}"}) {
    const auto trace = Mooncake(bad);
    EXPECT_EQ(ReasonOf(trace.status()), Reason::kInvalid) << bad;
    EXPECT_THAT(trace.status().message(), HasSubstr("line 1")) << bad;
  }
}

TEST(TraceReaderTest, TheShippedSampleHasFourHundredRequests) {
  const auto trace =
      ReadTraceFile(ATTN_SOURCE_DIR "/tools/loadgen/traces/azure_conversation_sample.csv");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->size(), 400u);
  EXPECT_EQ(trace->front().context_len, 374u);
}

TEST(TraceReaderTest, FilesAreToldApartByTheirEnding) {
  EXPECT_EQ(ReasonOf(ReadTraceFile("trace.txt").status()), Reason::kInvalid);
  EXPECT_EQ(ReadTraceFile("/nowhere/trace.csv").status().code(), absl::StatusCode::kNotFound);
}

TEST(ArrivalPlanTest, ATraceIsCutAndScaledInTimeAndLength) {
  Options options;
  options.max_requests = 2;
  options.time_scale = 0.5;
  options.length_scale = 0.1;
  options.max_context = 60;
  const auto plan = ScaleTrace({{0, 1000, 4}, {kSecond, 500, 100}, {2 * kSecond, 1, 1}}, options);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[1].arrival, kSecond / 2);
  EXPECT_EQ(plan[0].context_len, 60u);
  EXPECT_EQ(plan[0].generated_len, 1u) << "never 0";
  EXPECT_EQ(plan[1].context_len, 50u);
}

TEST(ArrivalPlanTest, PoissonGapsHaveTheRateAndTheSpreadOfAnExponential) {
  Options options;
  options.rate = 20;
  options.context = 300;
  options.max_requests = 20'000;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    options.seed = seed;
    const auto plan = PoissonPlan(options);
    double sum = 0, squares = 0, context = 0;
    for (size_t i = 1; i < plan.size(); ++i) {
      const double gap = static_cast<double>(plan[i].arrival - plan[i - 1].arrival) / kSecond;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
      context += plan[i].context_len;
      ASSERT_GE(plan[i].generated_len, 1u);
    }
    const double n = static_cast<double>(plan.size() - 1);
    // Five standard errors of a mean over 20,000.
    EXPECT_NEAR(sum / n, 0.05, 0.05 * 5 / 141) << seed;
    EXPECT_NEAR(squares / n, 2 * 0.05 * 0.05, 2 * 0.05 * 0.05 * 0.09) << seed;
    EXPECT_NEAR(context / n, 300, 300 * 5.0 / 141) << seed;
  }
  options.seed = 9;
  const auto first = PoissonPlan(options), second = PoissonPlan(options);
  EXPECT_EQ(first[777].arrival, second[777].arrival);
}

}  // namespace
}  // namespace attn::loadgen
