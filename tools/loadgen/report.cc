#include "tools/loadgen/report.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attn::loadgen {
namespace {

double PerSecond(uint64_t count, const RunReport& report) {
  return report.seconds > 0 ? static_cast<double>(count) / report.seconds : 0;
}

std::string Percentiles(const char* name, const Samples& samples) {
  return absl::StrFormat("%-24s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, samples.mean(),
                         samples.Percentile(50), samples.Percentile(90), samples.Percentile(95),
                         samples.Percentile(99));
}

std::string Line(const char* name, const std::string& value) {
  return absl::StrFormat("%-24s %s\n", name, value);
}

// Fields of an object, one behind another.
class JsonObject {
 public:
  JsonObject& Number(const char* name, double value) {
    return Raw(name, absl::StrFormat("%.10g", value));
  }
  JsonObject& Text(const char* name, const std::string& value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
    }
    return Raw(name, quoted + "\"");
  }
  JsonObject& Raw(const char* name, const std::string& value) {
    absl::StrAppend(&text_, text_.empty() ? "" : ", ", "\"", name, "\": ", value);
    return *this;
  }
  std::string Done() const { return absl::StrCat("{", text_, "}"); }

 private:
  std::string text_;
};

std::string JsonSamples(const Samples& samples) {
  return JsonObject()
      .Number("count", static_cast<double>(samples.size()))
      .Number("mean", samples.mean())
      .Number("p50", samples.Percentile(50))
      .Number("p90", samples.Percentile(90))
      .Number("p95", samples.Percentile(95))
      .Number("p99", samples.Percentile(99))
      .Done();
}

const char* NameOfVerdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kInvalid:
      break;
  }
  return "invalid";
}

}  // namespace

std::string TextReport(const Options& options, const RunReport& report) {
  const RunStats& stats = report.stats;
  std::string text;
  absl::StrAppend(
      &text, Line("server", report.device),
      Line("load", options.trace.empty() ? absl::StrCat("Poisson, ", options.rate, " requests/s")
                                         : options.trace),
      Line("requests", absl::StrFormat("%u done, %u failed, in %.1f s", stats.requests_done,
                                       stats.requests_failed, report.seconds)),
      Line("sequences at once", absl::StrCat(stats.max_active)),
      Line("tokens/s",
           absl::StrFormat("%.1f generated, %.1f prompt", PerSecond(stats.generated_tokens, report),
                           PerSecond(stats.prompt_tokens, report))),
      Line("goodput",
           absl::StrFormat("%.2f requests/s within %g ms to the first token and %g ms "
                           "per token (%u of %u)",
                           PerSecond(stats.requests_good, report), options.ttft_limit_ms,
                           options.step_limit_ms, stats.requests_good, stats.requests_done)),
      absl::StrFormat("\n%-24s %10s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p95", "p99"),
      Percentiles("first token, ms", stats.first_token_ms),
      Percentiles("per output token, ms", stats.step_ms),
      Percentiles("server queue, ms", stats.queue_ms),
      Percentiles("server compute, ms", stats.compute_ms),
      Percentiles("items per launch", stats.launch_items),
      Percentiles("rows per launch", stats.launch_q_rows), "\n",
      Line("load generator",
           absl::StrFormat("%.1f CPU s; %u of %u sends more than 1 ms late (%.2f %%), p99 %.2f ms",
                           report.cpu_seconds, report.late_sends, report.sends,
                           100 * report.late_share, report.send_delay_p99_ms)),
      Line("sequences left open",
           absl::StrFormat("%u of %u", report.sequences_left, report.sequences_opened)));
  if (options.verify > 0) {
    absl::StrAppend(
        &text, Line("verified",
                    absl::StrFormat("%u rows in float64, %u mismatches, worst error %.2f of the "
                                    "tolerance, in %.1f s",
                                    report.verify.rows, report.verify.mismatches,
                                    report.verify.worst, report.verify_seconds)));
  }
  return text;
}

std::string JsonReport(const Options& options, const RunReport& report, Verdict verdict,
                       const std::string& why) {
  const RunStats& stats = report.stats;
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  JsonObject verify;
  verify.Number("share", options.verify)
      .Number("rows", number(report.verify.rows))
      .Number("mismatches", number(report.verify.mismatches))
      // JSON knows no infinity.
      .Number("worst", std::min(report.verify.worst, 1e300))
      .Number("seconds", report.verify_seconds);
  return JsonObject()
             .Text("verdict", NameOfVerdict(verdict))
             .Text("why", why)
             .Text("device", report.device)
             .Text("trace", options.trace)
             .Number("seconds", report.seconds)
             .Number("requests_done", number(stats.requests_done))
             .Number("requests_failed", number(stats.requests_failed))
             .Number("max_active", stats.max_active)
             .Number("generated_tokens", number(stats.generated_tokens))
             .Number("prompt_tokens", number(stats.prompt_tokens))
             .Number("generated_tokens_per_s", PerSecond(stats.generated_tokens, report))
             .Number("prompt_tokens_per_s", PerSecond(stats.prompt_tokens, report))
             .Number("requests_good", number(stats.requests_good))
             .Number("goodput_per_s", PerSecond(stats.requests_good, report))
             .Number("steps", number(stats.steps))
             .Number("layer_requests", number(stats.layer_requests))
             .Raw("first_token_ms", JsonSamples(stats.first_token_ms))
             .Raw("step_ms", JsonSamples(stats.step_ms))
             .Raw("server_queue_ms", JsonSamples(stats.queue_ms))
             .Raw("server_compute_ms", JsonSamples(stats.compute_ms))
             .Raw("launch_items", JsonSamples(stats.launch_items))
             .Raw("launch_q_rows", JsonSamples(stats.launch_q_rows))
             .Number("cpu_seconds", report.cpu_seconds)
             .Number("sends", number(report.sends))
             .Number("late_sends", number(report.late_sends))
             .Number("send_delay_p99_ms", report.send_delay_p99_ms)
             .Number("sequences_opened", number(report.sequences_opened))
             .Number("sequences_left", number(report.sequences_left))
             .Raw("verify", verify.Done())
             .Done() +
         "\n";
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.flush();
  if (!out) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

}  // namespace attn::loadgen
