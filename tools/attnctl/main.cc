// attnctl: looks at a running server. See --help.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "attn/base/status_macros.h"
#include "tools/attnctl/arguments.h"
#include "tools/attnctl/live_view.h"
#include "tools/attnctl/server_link.h"
#include "tools/attnctl/views.h"

namespace attn::ctl {
namespace {

constexpr int kBadNews = 1;
constexpr int kWrongUse = 2;
constexpr char kToTopLeft[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";  // from here on
constexpr char kClearToEnd[] = "\x1b[J";
constexpr char kClearAll[] = "\x1b[H\x1b[2J";

template <typename Message, typename ToText>
absl::StatusOr<std::string> Show(const absl::StatusOr<Message>& message, bool json,
                                 ToText to_text) {
  ATTN_RETURN_IF_ERROR(message.status());
  return json ? MessageJson(*message) : to_text(*message);
}

// What one look prints.
absl::StatusOr<std::string> Look(const Arguments& arguments, ServerLink& link) {
  const bool json = arguments.json;
  if (arguments.verb == "info") return Show(link.Info(), json, MessageText);
  if (arguments.verb == "models") return Show(link.Models(), json, ModelsText);
  if (arguments.verb == "model") return Show(link.Model(arguments.name), json, MessageText);
  if (arguments.verb == "sequences") {
    v1::ListSequencesRequest request;
    request.set_model(arguments.model);
    request.set_owner(arguments.owner);
    return Show(link.Sequences(std::move(request), arguments.limit), json, SequencesText);
  }
  return Show(link.Stats(), json,
              [&](const v1::GetStatsResponse& stats) { return StatsText(stats, arguments.all); });
}

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "attnctl: %s\n", std::string(status.message()).c_str());
  return kBadNews;
}

int Health(const Arguments& arguments, ServerLink& link) {
  const absl::StatusOr<bool> serving =
      link.IsServing(arguments.name.empty() ? "attn.v1.Attention" : arguments.name);
  if (!serving.ok()) return Complain(serving.status());
  std::puts(*serving ? "SERVING" : "NOT_SERVING");
  return *serving ? 0 : kBadNews;
}

// Of the terminal that standard output is; 0 if it is none.
size_t TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return 0;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Goes on when the server does not answer: it may come back.
int Top(const Arguments& arguments, ServerLink& link) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kWide = 1000;
  if (TerminalWidth() > 0) std::fputs(kClearAll, stdout);
  absl::StatusOr<v1::GetStatsResponse> before = link.Stats();
  Clock::time_point then = Clock::now();
  if (!before.ok() && arguments.count > 0) return Complain(before.status());
  for (uint64_t look = 0; arguments.count == 0 || look < arguments.count; ++look) {
    std::this_thread::sleep_until(then + arguments.interval);
    absl::StatusOr<v1::GetStatsResponse> now = link.Stats();
    const Clock::time_point when = Clock::now();
    const size_t width = TerminalWidth();
    std::string text = absl::StrCat("attnctl: ", now.status().message(), "\n");
    if (now.ok()) {
      const std::chrono::duration<double> seconds = when - then;
      text = LiveText({.address = link.address(),
                       .seconds = seconds.count(),
                       .width = width > 0 ? width : kWide},
                      before.ok() ? *before : *now, *now);
    }
    const std::string screen = absl::StrCat(
        kToTopLeft, absl::StrReplaceAll(text, {{"\n", absl::StrCat(kClearLine, "\n")}}),
        kClearToEnd);
    std::fputs(width > 0 ? screen.c_str() : absl::StrCat(text, "\n").c_str(), stdout);
    if (std::fflush(stdout) != 0) return kBadNews;  // nobody reads any more
    before = std::move(now);
    then = when;
  }
  return before.ok() ? 0 : kBadNews;
}

int Run(const std::vector<std::string>& words) {
  const absl::StatusOr<Arguments> arguments = ParseArguments(words);
  if (!arguments.ok()) {
    Complain(arguments.status());
    return kWrongUse;
  }
  if (arguments->help) return std::fputs(HelpOf(arguments->verb).c_str(), stdout) < 0;
  ServerLink link(arguments->address, arguments->timeout);
  if (arguments->verb == "health") return Health(*arguments, link);
  if (arguments->verb == "top") return Top(*arguments, link);
  const absl::StatusOr<std::string> text = Look(*arguments, link);
  if (!text.ok()) return Complain(text.status());
  return std::fputs(text->c_str(), stdout) < 0;
}

}  // namespace
}  // namespace attn::ctl

int main(int argc, char** argv) {
  return attn::ctl::Run(std::vector<std::string>(argv + 1, argv + argc));
}
