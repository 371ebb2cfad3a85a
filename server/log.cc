#include "server/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace attn::server {
namespace {

constexpr size_t kLongestValue = 512;
// A pipe that is ready takes this much at once.
static_assert(kLongestLogLine <= PIPE_BUF);

absl::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
  }
  return "";
}

bool IsPlain(char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '='; }

std::string Quoted(absl::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c >= ' ' && c < 0x7f) {
      quoted += c;
    } else {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return quoted + "\"";
}

std::string Shown(absl::string_view value) {
  const bool is_cut = value.size() > kLongestValue;
  value = value.substr(0, kLongestValue);
  const bool is_plain = !value.empty() && std::all_of(value.begin(), value.end(), IsPlain);
  if (is_plain && !is_cut) return std::string(value);
  return is_cut ? Quoted(absl::StrCat(value, "...")) : Quoted(value);
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(absl::string_view text) {
  for (const LogLevel level : {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo}) {
    if (text == NameOf(level)) return level;
  }
  return std::nullopt;
}

std::string FormatLogLine(std::chrono::system_clock::time_point time, LogLevel level,
                          absl::string_view event, const std::vector<LogField>& fields) {
  std::string line = absl::StrCat(
      "time=",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(time), absl::UTCTimeZone()),
      " level=", NameOf(level), " event=", event);
  for (const LogField& field : fields) {
    const std::string text = absl::StrCat(" ", field.key, "=", Shown(field.value));
    if (line.size() + text.size() >= kLongestLogLine) break;
    line += text;
  }
  return line + "\n";
}

void Log::Write(LogLevel level, absl::string_view event, const std::vector<LogField>& fields) {
  if (level > level_) return;
  const auto now = std::chrono::system_clock::now();
  const std::string line = FormatLogLine(now, level, event, fields);
  const std::lock_guard lock(mutex_);
  if (!WriteLine(line)) {
    ++num_lost_;
  } else if (num_lost_ > 0 && WriteLine(FormatLogLine(now, LogLevel::kWarning, "lines_lost",
                                                      {{"count", absl::StrCat(num_lost_)}}))) {
    num_lost_ = 0;
  }
}

bool Log::WriteLine(const std::string& line) {
  pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return false;
  return write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

std::optional<uint64_t> LineLimit::Admit(Nanos now) {
  const std::lock_guard lock(mutex_);
  if (now >= second_ends_) {
    second_ends_ = now + kSecond;
    num_admitted_ = 0;
  }
  if (num_admitted_ == kLinesPerSecond) {
    ++num_held_back_;
    return std::nullopt;
  }
  ++num_admitted_;
  return std::exchange(num_held_back_, 0);
}

uint64_t LineLimit::TakeHeldBack(Nanos now) {
  const std::lock_guard lock(mutex_);
  return now < second_ends_ ? 0 : std::exchange(num_held_back_, 0);
}

}  // namespace attn::server
