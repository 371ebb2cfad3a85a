// One line of text per event of a server's life, for people and for programs:
//
//   time=2026-01-31T12:00:00.123Z level=warning event=call_refused reason=QUEUE_FULL …
//
// Values that need it are quoted, and whatever bytes a client sent, a line stays one line of
// printable ASCII. Only the program makes a Log; libraries do not log.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "attn/base/clock.h"

namespace attn::server {

enum class LogLevel { kError, kWarning, kInfo };

// "error", "warning" or "info".
std::optional<LogLevel> ParseLogLevel(absl::string_view text);

struct LogField {
  std::string key;
  std::string value;
};

// With its line feed. Values are cut after 512 bytes, a line before the field that would take it
// beyond kLongestLogLine.
inline constexpr size_t kLongestLogLine = 4000;
std::string FormatLogLine(std::chrono::system_clock::time_point time, LogLevel level,
                          absl::string_view event, const std::vector<LogField>& fields);

// Any thread. Never waits for the reader of the lines: what a full pipe does not take is lost, and
// the next line that goes out is followed by one that says how many were.
class Log {
 public:
  // Lines of `level` and those more serious. `fd` stays the caller's, and open.
  Log(int fd, LogLevel level) : fd_(fd), level_(level) {}

  void Write(LogLevel level, absl::string_view event, const std::vector<LogField>& fields);

 private:
  bool WriteLine(const std::string& line);  // REQUIRES: mutex_

  const int fd_;
  const LogLevel level_;
  std::mutex mutex_;  // leaf; keeps lines whole
  uint64_t num_lost_ = 0;
};

// Lets a few lines of one kind pass in each second and counts the others. Any thread.
class LineLimit {
 public:
  static constexpr int kLinesPerSecond = 5;

  // The line may be written, and is to say that so many were held back before it; or it is held
  // back.
  std::optional<uint64_t> Admit(Nanos now);
  // How many were held back in a second that is over, once.
  uint64_t TakeHeldBack(Nanos now);

 private:
  std::mutex mutex_;
  Nanos second_ends_ = 0;
  int num_admitted_ = 0;
  uint64_t num_held_back_ = 0;
};

}  // namespace attn::server
