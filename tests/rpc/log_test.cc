// Log lines: their form, that no client's text can break out of its line, and that floods are held
// back and counted.
#include "server/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "attn/base/error.h"
#include "server/rpc/event_log.h"

namespace attn::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::chrono::system_clock::time_point AtMillis(int64_t since_1970) {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(since_1970));
}

// A pipe that a Log writes to; what it holds, line by line.
class LogPipe {
 public:
  LogPipe() { EXPECT_EQ(pipe2(ends_, O_NONBLOCK), 0); }
  ~LogPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  std::vector<std::string> Lines() {
    std::string text;
    std::vector<char> block(1 << 16);
    for (ssize_t got; (got = read(ends_[0], block.data(), block.size())) > 0;) {
      text.append(block.data(), static_cast<size_t>(got));
    }
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(LogTest, ALineHasTimeLevelEventAndFields) {
  EXPECT_EQ(FormatLogLine(AtMillis(1769860800007), LogLevel::kWarning, "call_refused",
                          {{"reason", "QUEUE_FULL"}, {"request_id", "17"}}),
            "time=2026-01-31T12:00:00.007Z level=warning event=call_refused reason=QUEUE_FULL "
            "request_id=17\n");
}

TEST(LogTest, ValuesThatNeedItAreQuoted) {
  const auto shown = [](const std::string& value) {
    const std::string line = FormatLogLine(AtMillis(0), LogLevel::kInfo, "e", {{"v", value}});
    return line.substr(line.find(" v=") + 3);
  };
  EXPECT_EQ(shown("127.0.0.1:50051"), "127.0.0.1:50051\n");
  EXPECT_EQ(shown(""), "\"\"\n");
  EXPECT_EQ(shown("two words"), "\"two words\"\n");
  EXPECT_EQ(shown("a=b"), "\"a=b\"\n");
  EXPECT_EQ(shown("say \"no\" \\"), "\"say \\\"no\\\" \\\\\"\n");
}

TEST(LogTest, HostileTextStaysOnePrintableLine) {
  std::string hostile = "x\nlevel=error event=forged\r\x1b[2J\" \t\x7f\xc3\xa9";
  hostile.push_back('\0');
  const std::string line = FormatLogLine(AtMillis(0), LogLevel::kInfo, "e", {{"v", hostile}});
  EXPECT_THAT(line, EndsWith(" v=\"x\\nlevel=error event=forged\\x0d\\x1b[2J\\\" \\x09\\x7f\\xc3"
                             "\\xa9\\x00\"\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(LogTest, LongTextIsCut) {
  const std::string line = FormatLogLine(
      AtMillis(0), LogLevel::kInfo, "e",
      {{"a", std::string(100'000, 'x')}, {"b", std::string(1 << 20, '\n')}, {"c", "1"}});
  EXPECT_THAT(line, HasSubstr(" a=\"" + std::string(512, 'x') + "...\" b="));
  EXPECT_THAT(line, EndsWith("...\" c=1\n"));
  std::vector<LogField> many(100, {"k", std::string(500, '\x01')});
  EXPECT_LE(FormatLogLine(AtMillis(0), LogLevel::kInfo, "e", many).size(), kLongestLogLine);
}

TEST(LogTest, LevelsBelowTheChosenOneAreSilent) {
  LogPipe pipe;
  Log log(pipe.in(), LogLevel::kWarning);
  log.Write(LogLevel::kInfo, "quiet", {});
  log.Write(LogLevel::kWarning, "loud", {});
  log.Write(LogLevel::kError, "louder", {});
  EXPECT_THAT(pipe.Lines(), ElementsAre(EndsWith("event=loud"), EndsWith("event=louder")));
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("Warning"), std::nullopt);
}

TEST(LogTest, AReaderThatDoesNotReadHoldsUpNobodyAndIsToldWhatItLost) {
  LogPipe pipe;
  ASSERT_EQ(fcntl(pipe.in(), F_SETFL, 0), 0);  // a write to a full pipe would wait
  Log log(pipe.in(), LogLevel::kInfo);
  constexpr int kNumLines = 1000;  // about 500 bytes each, more than a pipe holds
  const std::vector<LogField> long_field = {{"v", std::string(500, 'x')}};
  for (int i = 0; i < kNumLines; ++i) log.Write(LogLevel::kInfo, "flood", long_field);
  const size_t kept = pipe.Lines().size();
  EXPECT_LT(kept, static_cast<size_t>(kNumLines));
  log.Write(LogLevel::kInfo, "after", {});
  const std::string lost = "count=" + std::to_string(kNumLines - kept);
  EXPECT_THAT(pipe.Lines(), ElementsAre(EndsWith("event=after"),
                                        EndsWith("level=warning event=lines_lost " + lost)));
}

class EventLogTest : public ::testing::Test {
 protected:
  LogPipe pipe;
  Log log{pipe.in(), LogLevel::kInfo};
  FakeClock clock;
  EventLog events{&log, &clock};
};

TEST_F(EventLogTest, RefusalsOfOneReasonAreHeldBackAndCounted) {
  const absl::Status full = MakeError(Reason::kQueueFull, "", "no room");
  for (int i = 0; i < 100; ++i) events.CallRefused("AttendRequest", 0, full);
  events.CallRefused("AttendStreamRequest", 9, MakeError(Reason::kInvalid, "q", "got 1"));
  std::vector<std::string> lines = pipe.Lines();
  ASSERT_THAT(lines, SizeIs(LineLimit::kLinesPerSecond + 1));
  EXPECT_THAT(lines.front(), EndsWith("level=warning event=call_refused reason=QUEUE_FULL "
                                      "request=AttendRequest message=\"no room\""));
  EXPECT_THAT(lines.back(), EndsWith("level=info event=call_refused reason=INVALID "
                                     "request=AttendStreamRequest request_id=9 "
                                     "message=\"q: got 1\""));
  clock.Advance(kSecond);
  events.CallRefused("AttendRequest", 0, full);
  events.CallRefused("AttendRequest", 0, full);
  lines = pipe.Lines();
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], EndsWith(" held_back=95"));
  EXPECT_THAT(lines[1], Not(HasSubstr("held_back")));
}

TEST_F(EventLogTest, WhatNoLaterLineTellsOfIsReportedWhenTheSecondIsOver) {
  for (int i = 0; i < 12; ++i) events.OwnerExpired("a client", 3);
  EXPECT_THAT(pipe.Lines(), SizeIs(LineLimit::kLinesPerSecond));
  events.ReportHeldBack();
  EXPECT_THAT(pipe.Lines(), IsEmpty()) << "the second is not over";
  clock.Advance(kSecond);
  events.ReportHeldBack();
  EXPECT_THAT(pipe.Lines(), ElementsAre(EndsWith("event=owner_expired held_back=7")));
  events.ReportHeldBack();
  EXPECT_THAT(pipe.Lines(), IsEmpty());
}

TEST_F(EventLogTest, TheEndOfADrainTellsOfAllThatWasHeldBack) {
  for (int i = 0; i < 7; ++i) {
    events.CallRefused("AttendRequest", 0, MakeError(Reason::kDraining, "", "stopping"));
  }
  EXPECT_THAT(pipe.Lines(), SizeIs(LineLimit::kLinesPerSecond));
  events.DrainEnded(kSecond, 0, 0);
  EXPECT_THAT(pipe.Lines(), ElementsAre(EndsWith("event=call_refused reason=DRAINING held_back=2"),
                                        EndsWith("seconds=1.000 calls=0 streams=0")));
}

TEST_F(EventLogTest, EveryEventHasItsLine) {
  events.Started("0.1.0", "cpu, 1 thread", "127.0.0.1:5");
  events.ModelDeclared("m\nn");
  events.ModelRemoved("m");
  events.DrainBegan(2, 1);
  events.DrainEnded(1500 * kMillisecond, 1, 0);
  events.Stalled(2 * kSecond);
  events.Recovered();
  events.DeviceLost(MakeError(Reason::kDeviceLost, "", "it is gone"));
  EXPECT_THAT(
      pipe.Lines(),
      ElementsAre(EndsWith("level=info event=start version=0.1.0 device=\"cpu, 1 thread\" "
                           "address=127.0.0.1:5"),
                  EndsWith("level=info event=model_declared model=\"m\\nn\""),
                  EndsWith("level=info event=model_removed model=m"),
                  EndsWith("level=info event=drain_begins calls=2 streams=1"),
                  EndsWith("level=warning event=drain_ends seconds=1.500 calls=1 streams=0"),
                  EndsWith("level=error event=stall seconds=2.000"),
                  EndsWith("level=info event=recovery"),
                  EndsWith("level=error event=device_lost message=\"it is gone\"")));
}

}  // namespace
}  // namespace attn::server
