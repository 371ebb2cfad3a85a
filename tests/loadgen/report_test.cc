// Percentiles, delayed sends, steps, verdicts, flags.
#include "tools/loadgen/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attn/base/error.h"
#include "tools/loadgen/progress.h"
#include "tools/loadgen/send_ledger.h"
#include "tools/loadgen/step.h"

namespace attn::loadgen {
namespace {

using ::testing::HasSubstr;

TEST(SamplesTest, PercentilesAreSamplesOfNearestRank) {
  Samples samples;
  EXPECT_EQ(samples.Percentile(50), 0);
  for (int i = 100; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Percentile(50), 50);
  EXPECT_EQ(samples.Percentile(95), 95);
  EXPECT_EQ(samples.Percentile(99), 99);
  EXPECT_EQ(samples.Percentile(100), 100);
  EXPECT_EQ(samples.Percentile(0.1), 1);
  EXPECT_EQ(samples.mean(), 50.5);
  Samples one;
  one.Add(7);
  EXPECT_EQ(one.Percentile(99), 7);
}

TEST(SendLedgerTest, MoreThanOnePercentOfSendsLaterThanAMillisecondMakeARunInvalid) {
  SendLedger ledger;
  EXPECT_TRUE(ledger.is_valid());
  for (int i = 0; i < 99; ++i) ledger.Note(1000, 1000 + kMillisecond);  // exactly: not late
  ledger.Note(1000, 1001 + kMillisecond);
  EXPECT_EQ(ledger.sends(), 100u);
  EXPECT_EQ(ledger.late(), 1u);
  EXPECT_TRUE(ledger.is_valid()) << "one percent is allowed";
  ledger.Note(0, kSecond);
  EXPECT_FALSE(ledger.is_valid());
}

TEST(StepTest, DecodingSequencesComeFirstAndPromptsFillTheChunkInOrder) {
  ActiveSequence decoding, first, second, third;
  decoding.plan = {0, 10, 5};
  decoding.len = 10;
  first.plan = {0, 100, 5};
  first.len = 70;
  second.plan = {0, 100, 5};
  third.plan = {0, 100, 5};
  const auto items = ComposeStep({&first, &second, &third, &decoding}, 64);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].sequence, &decoding);
  EXPECT_EQ(items[0].rows, 1u);
  EXPECT_EQ(items[1].sequence, &first);
  EXPECT_EQ(items[1].rows, 30u);
  EXPECT_EQ(items[2].sequence, &second);
  EXPECT_EQ(items[2].rows, 34u);
}

RunReport GoodReport() {
  RunReport report;
  report.stats.requests_done = 10;
  report.seconds = 2;
  report.verify.rows = 5;
  return report;
}

TEST(JudgeTest, EachFaultHasItsVerdict) {
  Options options;
  options.verify = 0.1;
  std::string why;
  EXPECT_EQ(Judge(options, GoodReport(), &why), Verdict::kGood);
  RunReport report = GoodReport();
  report.verify.mismatches = 1;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kFailed);
  report = GoodReport();
  report.verify.rows = 0;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kFailed);
  report = GoodReport();
  report.stats.requests_failed = 1;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kFailed);
  report = GoodReport();
  report.sequences_left = 1;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kFailed);
  report = GoodReport();
  report.on_time = false;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kInvalid);
  EXPECT_THAT(why, HasSubstr("load generator"));
  options.allow_late = true;
  EXPECT_EQ(Judge(options, report, &why), Verdict::kGood);
}

TEST(ReportTest, TextAndJsonHoldTheFigures) {
  Options options;
  options.verify = 0.1;
  RunReport report = GoodReport();
  for (int i = 1; i <= 100; ++i) report.stats.first_token_ms.Add(i);
  report.verify.worst = 0.5;
  const std::string text = TextReport(options, report);
  EXPECT_THAT(text, HasSubstr("10 done, 0 failed"));
  EXPECT_THAT(text, HasSubstr("5 rows in float64, 0 mismatches"));
  const std::string json = JsonReport(options, report, Verdict::kFailed, "a \"quote\"");
  EXPECT_THAT(json, HasSubstr("\"verdict\": \"failed\", \"why\": \"a \\\"quote\\\"\""));
  EXPECT_THAT(json, HasSubstr("\"first_token_ms\": {\"count\": 100, \"mean\": 50.5, \"p50\": 50, "
                              "\"p90\": 90, \"p95\": 95, \"p99\": 99}"));
}

TEST(OptionsTest, FlagsAreStoredAndMistakesNamed) {
  const char* good[] = {"--rate=2.5", "--dtype=float16", "--allow-late", "--layers=6"};
  const auto options = ParseOptions(4, good);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rate, 2.5);
  EXPECT_EQ(options->dtype, DType::kFloat16);
  EXPECT_TRUE(options->allow_late);
  EXPECT_EQ(options->layers, 6u);
  for (const char* bad :
       {"--rate=0", "--rate=inf", "--rate=x", "--layers=0", "--layers=-1", "--dtype=int8",
        "--verify=2", "--kv-heads=3", "--windowed-layers=5", "--nothing=1", "rate=3",
        "--inject-bitflip", "--max-requests=0", "--head-dim=12"}) {
    const auto refused = ParseOptions(1, &bad);
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kInvalid) << bad;
    const std::string name = std::string(bad).substr(0, std::string(bad).find('='));
    EXPECT_THAT(refused.status().message(), HasSubstr(name)) << bad;
  }
  EXPECT_THAT(Usage(), HasSubstr("--inject-bitflip"));
}

TEST(ProgressTest, TheBarFillsUp) {
  EXPECT_EQ(ProgressLine(0, 10, 3),
            "[>                                       ] 0/10 requests, 3 active");
  EXPECT_EQ(ProgressLine(10, 10, 0),
            "[========================================] 10/10 requests, 0 active");
}

}  // namespace
}  // namespace attn::loadgen
