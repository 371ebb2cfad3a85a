// Three times as many requests as the server can serve: how much of its best rate is left, how fast
// it refuses, how long those wait whom it takes, and whether its memory stays where it is.
//
//   overload_bench [--server=PATH] [--seconds=S] [--factor=F]
//
// Closed loop: the peak. A fifth of it, open loop: the times without load. Then the overload twice:
// requests with a time limit (2.25 times the p99 without load), and requests without one against a
// server with --max-queue-ms (1.5 times that p99).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attn/base/check.h"
#include "tools/bench/child_process.h"
#include "tools/bench/measurement.h"
#include "tools/bench/overload_load.h"

namespace attn::bench {
namespace {

constexpr double kLightLoad = 0.2;
constexpr double kTimeLimit = 2.25;   // of the p99 without load
constexpr double kLongestWait = 1.5;  // of the same

struct Flags {
  std::string server;
  double seconds = 60;
  double factor = 3;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  const std::string self = argv[0];
  flags.server = absl::StrCat(self.substr(0, self.rfind('/') + 1), "attn-server");
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--server=")) {
      flags.server = std::string(text);
    } else if (absl::ConsumePrefix(&text, "--seconds=")) {
      ATTN_CHECK(absl::SimpleAtod(text, &flags.seconds) && flags.seconds > 0, "--seconds=", text);
    } else if (absl::ConsumePrefix(&text, "--factor=")) {
      ATTN_CHECK(absl::SimpleAtod(text, &flags.factor) && flags.factor > 0, "--factor=", text);
    } else {
      ATTN_CHECK(absl::ConsumePrefix(&text, "--commit="), "unknown flag ", argv[i]);
    }
  }
  return flags;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const size_t index = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

void CheckNothingFailed(const Answers& answers) {
  ATTN_CHECK(answers.failed == 0, answers.failed, " failures: ", answers.first_failure);
}

double P99Of(const Answers& answers, Kind kind) {
  return Percentile(answers.of(kind).good_ms, 0.99);
}

// Times of one phase, against those without load where there is such a phase.
void ReportTimes(const std::string& shape, const Answers& answers, const Answers* unloaded) {
  for (const Kind kind : {Kind::kPrompt, Kind::kDecode}) {
    const double p99 = P99Of(answers, kind);
    const double rival = unloaded == nullptr ? 0 : P99Of(*unloaded, kind);
    Report({"overload", shape, kind == Kind::kPrompt ? "prompt chunk p99" : "decode p99", p99, "ms",
            unloaded == nullptr ? "" : "p99 without load", rival, rival == 0 ? 0 : p99 / rival});
  }
}

// What is late was admitted as well, and useless.
void ReportShares(const std::string& shape, const Answers& answers) {
  const auto report = [&](const char* metric, double value, const char* unit) {
    Report({"overload", shape, metric, value, unit, "", 0, 0});
  };
  for (const Kind kind : {Kind::kPrompt, Kind::kDecode}) {
    const Answers::OfKind& all = answers.of(kind);
    const std::string name = kind == Kind::kPrompt ? "prompt chunks" : "decode";
    const auto sent = static_cast<double>(all.sent);
    report((name + " answered, share").c_str(), static_cast<double>(all.good_ms.size()) / sent, "");
    report((name + " refused, share").c_str(), static_cast<double>(all.refused_ms.size()) / sent,
           "");
    report((name + " admitted and late, share").c_str(), static_cast<double>(all.late) / sent, "");
  }
  const std::vector<double>& refused = answers.of(Kind::kPrompt).refused_ms;
  report("refusal p50", Percentile(refused, 0.5), "ms");
  report("refusal p99", Percentile(refused, 0.99), "ms");
  report("refusal longest", Percentile(refused, 1), "ms");
  report("sent late by the load generator", static_cast<double>(answers.sent_late), "requests");
  report("not sent for want of a sequence", static_cast<double>(answers.no_sequence), "requests");
}

// A server and the load on it.
struct Target {
  Target(const std::string& program, const std::string& option)
      : server({program, "--listen=127.0.0.1:0", "--backend=cpu", option}),
        load(absl::StrCat("127.0.0.1:", server.WaitForPort())) {}

  ChildProcess server;
  OverloadLoad load;
};

struct Unloaded {
  Answers peak;
  Answers light;
  double p99_ms = 0;
};

Unloaded MeasureUnloaded(OverloadLoad& load, double seconds) {
  Unloaded result;
  load.Run({.seconds = std::min(seconds, 2.0)});  // warms up
  result.peak = load.Run({.seconds = seconds / 3});
  CheckNothingFailed(result.peak);
  const double rate = result.peak.prompts_per_second();
  Report({"overload", "closed loop, 32 callers", "prompt chunks", rate, "1/s", "", 0, 0});
  result.light = load.Run({.seconds = seconds / 3, .rate = kLightLoad * rate});
  CheckNothingFailed(result.light);
  result.p99_ms = P99Of(result.light, Kind::kPrompt);
  ReportTimes("a fifth of the peak", result.light, nullptr);
  return result;
}

void MeasureOverload(Target& target, const Flags& flags, const Unloaded& unloaded,
                     const std::string& what, uint32_t timeout_ms) {
  const double peak = unloaded.peak.prompts_per_second();
  const std::string shape =
      absl::StrCat(flags.factor, " times the peak for ", flags.seconds, " s, ", what);
  PhaseOptions phase{
      .seconds = flags.seconds / 10, .rate = flags.factor * peak, .timeout_ms = timeout_ms};
  CheckNothingFailed(target.load.Run(phase));
  const double memory = target.server.ResidentMegabytes();
  phase.seconds = flags.seconds;
  const Answers answers = target.load.Run(phase);
  CheckNothingFailed(answers);
  Report({"overload", shape, "goodput", answers.prompts_per_second(), "1/s", "closed-loop peak",
          peak, answers.prompts_per_second() / peak});
  ReportTimes(shape, answers, &unloaded.light);
  ReportShares(shape, answers);
  const double after = target.server.ResidentMegabytes();
  Report({"overload", shape, "server memory", after, "MB", "after a tenth of the time", memory,
          after / memory});
}

void Run(const Flags& flags) {
  auto target = std::make_unique<Target>(flags.server, "--max-queue-ms=0");
  const Unloaded unloaded = MeasureUnloaded(target->load, flags.seconds);
  const auto limit = static_cast<uint32_t>(std::ceil(kTimeLimit * unloaded.p99_ms));
  MeasureOverload(*target, flags, unloaded, absl::StrCat("time limit ", limit, " ms"), limit);
  const std::string option =
      absl::StrCat("--max-queue-ms=", std::ceil(kLongestWait * unloaded.p99_ms));
  target.reset();
  target = std::make_unique<Target>(flags.server, option);
  MeasureOverload(*target, flags, unloaded, option, 0);
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  attn::bench::StartMeasurements(argc, argv);
  attn::bench::Run(attn::bench::ParseFlags(argc, argv));
  return 0;
}
