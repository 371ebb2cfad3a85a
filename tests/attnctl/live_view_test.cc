#include "tools/attnctl/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "tests/attnctl/stats_maker.h"

namespace attn::ctl {
namespace {

using test::StatsMaker;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StatsMaker Server(double attends, double refused) {
  StatsMaker stats;
  stats.Gauge("attn_server_info", 1)
      .Labelled({"version", "device"}, {"1.2.3", "cpu, 2 threads"}, 1)
      .Gauge("attn_serving", 1)
      .Counter("attn_calls_total", 0)
      .Labelled({"kind"}, {"attend"}, attends)
      .Labelled({"kind"}, {"open"}, 10)
      .Counter("attn_refused_calls_total", 0)
      .Labelled({"at", "reason"}, {"border", "QUEUE_FULL"}, refused)
      .Labelled({"at", "reason"}, {"engine", "NO_PAGES"}, 3)
      .Times("attn_launch_seconds", {static_cast<uint64_t>(attends), 0, 0, 0}, attends / 1000)
      .Gauge("attn_kv_live_bytes", 1 << 20)
      .Gauge("attn_kv_budget_bytes", 4 << 20)
      .Gauge("attn_queue_items", 12);
  return stats;
}

std::vector<std::string> LinesOf(const std::string& text) { return absl::StrSplit(text, '\n'); }

std::string Line(const std::string& text, const std::string& title) {
  for (const std::string& line : LinesOf(text)) {
    if (line.rfind(title, 0) == 0) return line;
  }
  return "no line " + title;
}

TEST(LiveViewTest, RatesAreDifferencesOverTheirTime) {
  const std::string text = LiveText({.address = "here", .seconds = 2}, Server(1000, 50).response,
                                    Server(1900, 150).response);
  EXPECT_EQ(Line(text, "attn-server"), "attn-server 1.2.3 at here   SERVING   cpu, 2 threads");
  EXPECT_EQ(Line(text, "calls"), "calls       attend 450/s   others 0/s   refused 50/s");
  EXPECT_THAT(Line(text, "launches"), AllOf(HasSubstr("450/s"), HasSubstr("in kernels 45 %")));
  EXPECT_EQ(Line(text, "refusals"), "refusals    QUEUE_FULL 50/s");
  EXPECT_THAT(Line(text, "cache"), HasSubstr("[########......................] 25 % of 4 MiB"));
  EXPECT_THAT(Line(text, "queue"), HasSubstr("12 of"));
}

TEST(LiveViewTest, AQuietServerHasNoRates) {
  const std::string text =
      LiveText({.address = "here"}, Server(10, 1).response, Server(10, 1).response);
  EXPECT_THAT(Line(text, "p50/90/99"), HasSubstr("call - / - / -"));
  EXPECT_EQ(Line(text, "refusals"), "refusals    none");
}

TEST(LiveViewTest, ARestartIsSaidAndGivesNoNegativeRates) {
  const std::string text =
      LiveText({.address = "here"}, Server(1000, 50).response, Server(10, 0).response);
  EXPECT_EQ(Line(text, "rates"), "rates       the server has been started anew");
  EXPECT_THAT(text, AllOf(Not(HasSubstr("-/s")), Not(HasSubstr("refusals"))));
  EXPECT_THAT(Line(text, "queue"), HasSubstr("12 of"));
}

TEST(LiveViewTest, NoLineIsWiderThanTheTerminal) {
  const std::string text = LiveText({.address = "here", .width = 30}, Server(1000, 50).response,
                                    Server(1900, 150).response);
  for (const std::string& line : LinesOf(text)) {
    const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
    EXPECT_LE(std::count_if(line.begin(), line.end(), begins), 30) << line;
  }
}

TEST(LiveViewTest, AnAnswerWithoutMetricsIsNoFault) {
  EXPECT_THAT(LiveText({.address = "here"}, {}, {}), HasSubstr("NOT SERVING"));
}

}  // namespace
}  // namespace attn::ctl
