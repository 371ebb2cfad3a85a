// The table, in parts, and how rows of each kind get their samples.
#include "server/core/metric_table.h"

#include <array>
#include <iterator>
#include <utility>
#include <variant>

#include "attn/base/error.h"

namespace attn::server {
namespace {

// The sources, with what is read from them once for all rows.
struct Figures {
  const MetricSources& sources;
  const EngineStats& engine;
  const BorderStats& border;
  const EngineOptions& options;
  const kvcache::CacheStats cache;
  const CallQueue::Load load;
};

using Samples = std::vector<MetricSample>;

struct Row {
  const char* name;
  const char* help;
  MetricType type;
  std::vector<std::string> label_names;
  Samples (*collect)(const Figures&);
};

// As the alternatives of Request.
constexpr std::array<const char*, std::variant_size_v<Request>> kKinds = {
    "attend",   "open", "fork",  "reorder",       "truncate",     "close",
    "describe", "list", "renew", "declare_model", "remove_model", "end_stream"};

double Seconds(uint64_t ns) { return static_cast<double>(ns) / kSecond; }

template <typename Number>
Samples One(Number value) {
  return {{.label_values = {}, .value = static_cast<double>(value)}};
}

Samples Distribution(const Histogram& histogram, double unit) {
  MetricDistribution shown;
  for (const uint64_t bound : histogram.bounds()) {
    shown.upper_bounds.push_back(static_cast<double>(bound) / unit);
  }
  shown.cumulative_counts = histogram.CumulativeCounts();
  shown.sum = static_cast<double>(histogram.sum()) / unit;
  return {{.label_values = {}, .distribution = std::move(shown)}};
}

Samples Times(const Histogram& histogram) { return Distribution(histogram, kSecond); }
Samples Counts(const Histogram& histogram) { return Distribution(histogram, 1); }

Samples Kinds(const EngineStats& stats) {
  Samples samples;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    samples.push_back({.label_values = {kKinds[i]},
                       .value = static_cast<double>(stats.completed_by_kind[i].value())});
  }
  return samples;
}

template <typename Number>
void AddReasons(const char* at, const ByReason<Number>& numbers, Samples* samples) {
  for (size_t i = static_cast<size_t>(Reason::kInvalid); i < kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    samples->push_back({.label_values = {at, std::string(NameOf(reason))},
                        .value = static_cast<double>(numbers[reason].value())});
  }
}

Samples Reasons(const ByReason<SharedCounter>& border, const ByReason<Counter>& engine) {
  Samples samples;
  AddReasons("border", border, &samples);
  AddReasons("engine", engine, &samples);
  return samples;
}

Samples Pages(const kvcache::PoolStats& pages) {
  const auto sample = [](const char* state, int64_t count) {
    return MetricSample{.label_values = {state}, .value = static_cast<double>(count)};
  };
  return {sample("free", pages.free), sample("reserved", pages.reserved),
          sample("live", pages.live), sample("unbacked", pages.unbacked)};
}

// A row without labels.
#define ATTN_METRIC(name, kind, help, value)                                            \
  Row {                                                                                 \
    name, help, MetricType::kind, {}, [](const Figures& f) -> Samples { return value; } \
  }

std::vector<Row> ServerRows() {
  return {
      {"attn_server_info",
       "Always 1; the labels say what runs on what.",
       MetricType::kGauge,
       {"version", "device"},
       [](const Figures& f) -> Samples {
         return {
             {.label_values = {f.sources.version, f.sources.engine->device_name()}, .value = 1}};
       }},
      ATTN_METRIC("attn_serving", kGauge,
                  "1 while the data path makes progress or has nothing to do, else 0.",
                  One(f.sources.serving)),
      ATTN_METRIC("attn_draining", kGauge, "1 once the server has been told to stop, else 0.",
                  One(f.sources.draining)),
      ATTN_METRIC("attn_device_lost", kGauge, "1 once the device computes no more, else 0.",
                  One(!f.sources.engine->device_error().ok())),
      ATTN_METRIC("attn_open_streams", kGauge, "AttendStream RPCs that are open.",
                  One(f.sources.open_streams)),
      ATTN_METRIC("attn_calls_in_flight", kGauge, "Calls between their arrival and their answer.",
                  One(f.sources.calls_in_flight)),
      ATTN_METRIC("attn_received_bytes_total", kCounter, "Bytes of request messages.",
                  One(f.border.received_bytes.value())),
      ATTN_METRIC("attn_sent_bytes_total", kCounter, "Bytes of response messages.",
                  One(f.border.sent_bytes.value())),
  };
}

std::vector<Row> QueueRows() {
  return {
      ATTN_METRIC("attn_queue_items", kGauge, "Items accepted and not yet answered.",
                  One(f.load.items)),
      ATTN_METRIC("attn_queue_max_items", kGauge, "Above this many items calls are refused.",
                  One(f.options.queue.max_items)),
      ATTN_METRIC("attn_queue_bytes", kGauge,
                  "Tensor bytes, in and out, of calls accepted and not yet answered.",
                  One(f.load.bytes)),
      ATTN_METRIC("attn_queue_max_bytes", kGauge, "Above this many bytes calls are refused.",
                  One(f.options.queue.max_bytes)),
      ATTN_METRIC("attn_queue_seconds", kHistogram,
                  "Time of an Attend call from its arrival to its first launch.",
                  Times(f.engine.queue_time)),
      ATTN_METRIC("attn_compute_seconds", kHistogram,
                  "Time of an Attend call in launches, which it may share with other calls.",
                  Times(f.engine.compute_time)),
      ATTN_METRIC("attn_call_seconds", kHistogram,
                  "Time of an Attend call from its arrival until its answer is ready to be sent.",
                  Times(f.engine.call_time)),
  };
}

std::vector<Row> CallRows() {
  return {
      {"attn_calls_total",
       "Calls that the engine has answered, whatever the answer.",
       MetricType::kCounter,
       {"kind"},
       [](const Figures& f) { return Kinds(f.engine); }},
      ATTN_METRIC("attn_items_total", kCounter, "Items of Attend calls that have ended.",
                  One(f.engine.items_completed.value())),
      ATTN_METRIC("attn_failed_items_total", kCounter,
                  "Items of Attend calls that have ended with an error.",
                  One(f.engine.items_failed.value())),
      {"attn_refused_calls_total",
       "Calls answered with an error as a whole: at the border, before they were queued, or by the "
       "engine.",
       MetricType::kCounter,
       {"at", "reason"},
       [](const Figures& f) { return Reasons(f.border.refused_calls, f.engine.refused_calls); }},
      {"attn_refused_items_total",
       "Items answered with an error, of calls that as a whole were answered.",
       MetricType::kCounter,
       {"at", "reason"},
       [](const Figures& f) { return Reasons(f.border.refused_items, f.engine.refused_items); }},
      ATTN_METRIC("attn_appended_tokens_total", kCounter,
                  "Tokens whose keys and values were written, counted for each layer.",
                  One(f.engine.appended_tokens.value())),
      ATTN_METRIC("attn_replayed_items_total", kCounter,
                  "Items that repeated an append, which was not written again.",
                  One(f.engine.replayed_items.value())),
      ATTN_METRIC("attn_prefill_chunks_total", kCounter,
                  "Pieces of prefills and long appends that were computed.",
                  One(f.engine.prefill_chunks.value())),
  };
}

std::vector<Row> LaunchRows() {
  return {
      ATTN_METRIC("attn_launch_items", kHistogram, "Items in a launch, of all calls.",
                  Counts(f.engine.launch_items)),
      ATTN_METRIC("attn_launch_layers", kHistogram, "Different layers in a launch.",
                  Counts(f.engine.launch_layers)),
      ATTN_METRIC("attn_launch_clients", kHistogram,
                  "Different clients in a launch: a stream is one, and so is a unary call.",
                  Counts(f.engine.launch_clients)),
      ATTN_METRIC("attn_launch_seconds", kHistogram,
                  "Time of the device for a launch; the sum is the time in kernels.",
                  Times(f.engine.launch_time)),
      ATTN_METRIC("attn_failed_launches_total", kCounter, "Launches that failed on the device.",
                  One(f.engine.failed_launches.value())),
      ATTN_METRIC("attn_multi_client_multi_layer_launches_total", kCounter,
                  "Launches with at least two clients and two layers.",
                  One(f.engine.multi_client_multi_layer_launches.value())),
      ATTN_METRIC("attn_launched_calls_total", kCounter,
                  "Different calls in a launch, summed over launches.",
                  One(f.engine.launched_callers.value())),
      ATTN_METRIC("attn_launched_q_rows_total", kCounter, "Query rows of all launches.",
                  One(f.engine.launched_q_rows.value())),
      ATTN_METRIC("attn_steps_total", kCounter, "Turns of the engine, with or without work.",
                  One(f.engine.steps.value())),
      ATTN_METRIC("attn_schedule_seconds_total", kCounter,
                  "Time that turns with work took outside launches.",
                  One(Seconds(f.engine.schedule_ns.value()))),
      ATTN_METRIC("attn_longest_step_seconds", kGauge, "The longest turn since the start.",
                  One(Seconds(f.engine.longest_step_ns.value()))),
  };
}

std::vector<Row> CacheRows() {
  return {
      ATTN_METRIC("attn_models", kGauge, "Declared models.", One(f.sources.registry->size())),
      ATTN_METRIC("attn_open_sequences", kGauge, "Open sequences.", One(f.cache.num_sequences)),
      ATTN_METRIC("attn_max_sequences", kGauge, "Above this many no sequence can be opened.",
                  One(f.options.max_sequences)),
      ATTN_METRIC("attn_opened_sequences_total", kCounter, "Sequences opened, forks not counted.",
                  One(f.engine.opened_sequences.value())),
      ATTN_METRIC("attn_forked_sequences_total", kCounter, "Sequences made by forks.",
                  One(f.engine.forked_sequences.value())),
      ATTN_METRIC("attn_expired_sequences_total", kCounter,
                  "Sequences closed because their lease ran out.",
                  One(f.engine.expired_sequences.value())),
      ATTN_METRIC("attn_expired_owners_total", kCounter, "Leases that ran out.",
                  One(f.engine.expired_owners.value())),
      {"attn_pages",
       "Pages by state: free (with memory, unused), reserved (behind every committed length), "
       "live, unbacked (without memory).",
       MetricType::kGauge,
       {"state"},
       [](const Figures& f) { return Pages(f.cache.pages); }},
      ATTN_METRIC("attn_page_copies_total", kCounter,
                  "Pages copied because a sequence wrote to one that it shared.",
                  One(f.engine.page_copies.value())),
      ATTN_METRIC("attn_kv_budget_bytes", kGauge, "Byte budget of all pages of all models.",
                  One(f.cache.budget_bytes)),
      ATTN_METRIC("attn_kv_backed_bytes", kGauge, "Bytes of pages that have memory.",
                  One(f.cache.backed_bytes)),
      ATTN_METRIC("attn_kv_live_bytes", kGauge, "Bytes of pages that hold tokens.",
                  One(f.cache.live_bytes)),
  };
}

#undef ATTN_METRIC

std::vector<Row> Table() {
  std::vector<Row> rows;
  for (std::vector<Row> part : {ServerRows(), QueueRows(), CallRows(), LaunchRows(), CacheRows()}) {
    std::move(part.begin(), part.end(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

const char* NameOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

std::vector<MetricFamily> Snapshot(const MetricSources& sources) {
  const Figures figures{.sources = sources,
                        .engine = sources.engine->stats(),
                        .border = *sources.border,
                        .options = sources.engine->options(),
                        .cache = sources.engine->cache_stats(),
                        .load = sources.engine->queue().load()};
  std::vector<MetricFamily> families;
  for (Row& row : Table()) {
    families.push_back(
        {row.name, row.help, row.type, std::move(row.label_names), row.collect(figures)});
  }
  return families;
}

}  // namespace attn::server
