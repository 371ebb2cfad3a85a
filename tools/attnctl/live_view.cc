#include "tools/attnctl/live_view.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/attnctl/metrics.h"
#include "tools/attnctl/text.h"

namespace attn::ctl {
namespace {

constexpr size_t kBarWidth = 32;

std::string Share(double part, double whole) {
  return absl::StrFormat("%.0f %%", whole > 0 ? 100 * part / whole : 0);
}

// Lines of one width.
class Screen {
 public:
  explicit Screen(size_t width) : width_(width) {}
  void Add(absl::string_view title, const std::vector<std::string>& parts) {
    absl::StrAppend(
        &text_, Fit(absl::StrFormat("%-12s%s", title, absl::StrJoin(parts, "   ")), width_), "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  const size_t width_;
  std::string text_;
};

void AddState(const LiveView& view, const Metrics& now, Screen* screen) {
  const char* state = "SERVING";
  if (now.Value("attn_serving") == 0) state = "NOT SERVING";
  if (now.Value("attn_draining") != 0) state = "DRAINING";
  if (now.Value("attn_device_lost") != 0) state = "DEVICE LOST";
  screen->Add("attn-server", {absl::StrCat(Printable(now.Label("attn_server_info", "version")),
                                           " at ", Printable(view.address)),
                              state, Printable(now.Label("attn_server_info", "device"))});
}

void AddRates(const Metrics& rates, double seconds, Screen* screen) {
  const auto rate = [&](double count) { return absl::StrCat(Number(count / seconds), "/s"); };
  const double calls = rates.Value("attn_calls_total");
  const double attends = rates.Value("attn_calls_total", {"attend"});
  screen->Add("calls", {absl::StrCat("attend ", rate(attends)),
                        absl::StrCat("others ", rate(calls - attends)),
                        absl::StrCat("refused ", rate(rates.Value("attn_refused_calls_total")))});
  screen->Add(
      "items",
      {rate(rates.Value("attn_items_total")),
       absl::StrCat("failed ", rate(rates.Value("attn_failed_items_total"))),
       absl::StrCat("query rows ", rate(rates.Value("attn_launched_q_rows_total"))),
       absl::StrCat("tokens x layers appended ", rate(rates.Value("attn_appended_tokens_total")))});
  screen->Add("wire",
              {absl::StrCat("in ", Bytes(rates.Value("attn_received_bytes_total") / seconds), "/s"),
               absl::StrCat("out ", Bytes(rates.Value("attn_sent_bytes_total") / seconds), "/s")});
  const v1::Distribution launch_time = rates.DistributionOf("attn_launch_seconds");
  const auto mean = [&](const char* name) { return Number(Mean(rates.DistributionOf(name))); };
  screen->Add(
      "launches",
      {rate(Count(launch_time)), absl::StrCat("in kernels ", Share(launch_time.sum(), seconds)),
       absl::StrCat("each ", mean("attn_launch_items"), " items, ", mean("attn_launch_layers"),
                    " layers, ", mean("attn_launch_clients"), " clients")});
  std::vector<std::string> times;
  for (const auto& [title, name] :
       {std::pair("call", "attn_call_seconds"), std::pair("queue", "attn_queue_seconds"),
        std::pair("compute", "attn_compute_seconds")}) {
    const v1::Distribution distribution = rates.DistributionOf(name);
    const auto at = [&](double quantile) {
      const std::optional<double> value = Quantile(distribution, quantile);
      return value.has_value() ? Seconds(*value) : std::string("-");
    };
    times.push_back(absl::StrCat(title, " ", at(0.5), " / ", at(0.9), " / ", at(0.99)));
  }
  screen->Add("p50/90/99", times);
}

void AddRefusals(const Metrics& rates, double seconds, Screen* screen) {
  std::vector<std::pair<double, std::string>> reasons;
  for (const char* name : {"attn_refused_calls_total", "attn_refused_items_total"}) {
    const v1::MetricFamily* const family = rates.Find(name);
    if (family == nullptr) continue;
    for (const v1::MetricSample& sample : family->samples()) {
      if (sample.value() == 0 || sample.label_values_size() < 2) continue;
      const auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& known) {
        return known.second == sample.label_values(1);
      });
      if (same != reasons.end()) {
        same->first += sample.value();
      } else {
        reasons.emplace_back(sample.value(), sample.label_values(1));
      }
    }
  }
  std::sort(reasons.rbegin(), reasons.rend());
  std::vector<std::string> parts;
  for (const auto& [count, reason] : reasons) {
    parts.push_back(absl::StrCat(Printable(reason), " ", Number(count / seconds), "/s"));
  }
  screen->Add("refusals", parts.empty() ? std::vector<std::string>{"none"} : parts);
}

void AddFill(const Metrics& now, Screen* screen) {
  const double items = now.Value("attn_queue_items");
  screen->Add("queue", {absl::StrCat(Whole(items), " of ", Whole(now.Value("attn_queue_max_items")),
                                     " items"),
                        absl::StrCat(Bytes(now.Value("attn_queue_bytes")), " of ",
                                     Bytes(now.Value("attn_queue_max_bytes"))),
                        absl::StrCat("calls in flight ", Whole(now.Value("attn_calls_in_flight"))),
                        absl::StrCat("streams ", Whole(now.Value("attn_open_streams")))});
  const double live = now.Value("attn_kv_live_bytes");
  const double budget = now.Value("attn_kv_budget_bytes");
  screen->Add("cache", {absl::StrCat(Bar(budget > 0 ? live / budget : 0, kBarWidth), " ",
                                     Share(live, budget), " of ", Bytes(budget)),
                        absl::StrCat("with memory ", Bytes(now.Value("attn_kv_backed_bytes")))});
  const auto pages = [&](const char* state) {
    return absl::StrCat(state, " ", Whole(now.Value("attn_pages", {state})));
  };
  screen->Add("pages", {pages("live"), pages("reserved"), pages("free"), pages("unbacked")});
  screen->Add("sequences", {absl::StrCat(Whole(now.Value("attn_open_sequences")), " of ",
                                         Whole(now.Value("attn_max_sequences"))),
                            absl::StrCat("models ", Whole(now.Value("attn_models")))});
}

}  // namespace

std::string LiveText(const LiveView& view, const v1::GetStatsResponse& before,
                     const v1::GetStatsResponse& now) {
  Screen screen(view.width);
  const Metrics state(now);
  AddState(view, state, &screen);
  if (const auto between = Difference(before, now)) {
    const Metrics rates(*between);
    AddRates(rates, view.seconds, &screen);
    AddRefusals(rates, view.seconds, &screen);
  } else {
    screen.Add("rates", {"the server has been started anew"});
  }
  AddFill(state, &screen);
  return screen.Take();
}

}  // namespace attn::ctl
