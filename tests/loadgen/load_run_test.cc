// Whole runs against the real server: they verify, they notice one flipped bit, they leave nothing
// behind.
#include "tools/loadgen/load_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/server_process.h"
#include "tools/loadgen/report.h"

namespace attn::loadgen {
namespace {

using ::testing::HasSubstr;

class LoadRunTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(server_.port(), 0) << "attn-server did not start"; }

  Options SmallLoad() const {
    Options options;
    options.target = server_.target();
    options.rate = 200;
    options.max_requests = 24;
    options.context = 150;
    options.generated = 8;
    options.prefill_chunk = 64;
    options.window = 40;
    options.verify = 0.05;
    // How late sends are is a property of the machine, not of the code under test.
    options.allow_late = true;
    return options;
  }

  test::ServerProcess server_;
};

TEST_F(LoadRunTest, AVerifiedRunOfEveryDtypeIsGoodAndLeavesNoSequence) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    Options options = SmallLoad();
    options.dtype = dtype;
    options.soft_cap = dtype == DType::kFloat32 ? 5 : 0;
    const auto report = RunLoad(options);
    ASSERT_TRUE(report.ok()) << report.status();
    std::string why;
    EXPECT_EQ(Judge(options, *report, &why), Verdict::kGood) << NameOf(dtype) << ": " << why;
    EXPECT_EQ(report->stats.requests_done, 24u);
    EXPECT_GT(report->verify.rows, 100u);
    EXPECT_EQ(report->verify.mismatches, 0u);
    EXPECT_EQ(report->sequences_opened, 24u);
    EXPECT_EQ(report->sequences_left, 0u);
    EXPECT_EQ(report->stats.first_token_ms.size(), 24u);
  }
  std::string last_line;
  EXPECT_EQ(server_.Stop(&last_line), 0);
  EXPECT_THAT(last_line, HasSubstr("leaked_sequences=0 leaked_pages=0"));
}

TEST_F(LoadRunTest, OneFlippedBitOfOneSentKeyFailsTheRun) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    Options options = SmallLoad();
    options.dtype = dtype;
    options.inject_bitflip = true;
    const auto report = RunLoad(options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->flipped);
    EXPECT_GE(report->verify.mismatches, 1u) << NameOf(dtype);
    std::string why;
    EXPECT_EQ(Judge(options, *report, &why), Verdict::kFailed);
    EXPECT_THAT(why, HasSubstr("verified rows are wrong"));
  }
}

TEST_F(LoadRunTest, TheProgramReplaysATraceAndWritesItsReport) {
  const std::string json = testing::TempDir() + "loadgen_report_" + std::to_string(getpid());
  const std::string program = ATTN_BINARY_DIR "/bin/attn-loadgen --target=" + server_.target();
  const std::string trace = " --trace=" ATTN_SOURCE_DIR
                            "/tools/loadgen/traces/azure_conversation_sample.csv"
                            " --max-requests=8 --time-scale=0.01 --length-scale=0.1"
                            " --allow-late --json=" +
                            json;
  const int good = std::system((program + trace + " --verify=0.02 >/dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(good), 0);
  std::ifstream in(json);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, HasSubstr("\"verdict\": \"good\""));
  EXPECT_THAT(text, HasSubstr("\"requests_done\": 8"));
  EXPECT_THAT(text, HasSubstr("\"p99\": "));
  const int flipped =
      std::system((program + trace + " --verify=0.02 --inject-bitflip >/dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(flipped), 1);
  const int unknown = std::system((program + " --no-such-flag=1 >/dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(unknown), 2);
  std::remove(json.c_str());
}

TEST_F(LoadRunTest, TheExampleOfTheClientLibraryRuns) {
  const int status =
      std::system((ATTN_BINARY_DIR "/bin/decode_loop " + server_.target() + " >/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LoadRunTest, ARunWithoutASampledRowFailsWhenVerificationWasAskedFor) {
  Options options = SmallLoad();
  options.max_requests = 1;
  options.verify = 1e-12;
  const auto report = RunLoad(options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::string why;
  EXPECT_EQ(Judge(options, *report, &why), Verdict::kFailed);
  EXPECT_THAT(why, HasSubstr("no row was sampled"));
}

}  // namespace
}  // namespace attn::loadgen
