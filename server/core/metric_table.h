// Every metric of a server, said once: its name, help, type and labels, and where its value comes
// from. What shows metrics (a scrape, an RPC, a table of docs/metrics.md) takes them from here.
//
//   for (const MetricFamily& family : Snapshot(sources)) …
//
// Names begin with attn_, are in base units (seconds, bytes), and end in _total if they only grow.
// A name that is here is a promise to users: tests/server/metric_table_test.cc holds all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/core/engine.h"
#include "server/core/model_registry.h"
#include "server/core/stats.h"

namespace attn::server {

enum class MetricType { kCounter, kGauge, kHistogram };

// "counter", "gauge", "histogram".
const char* NameOf(MetricType type);

// Values that fell into ranges. The last of counts is of all values, whatever their size.
struct MetricDistribution {
  std::vector<double> upper_bounds;
  std::vector<uint64_t> cumulative_counts;  // one more than bounds
  double sum = 0;
};

struct MetricSample {
  std::vector<std::string> label_values;  // as MetricFamily::label_names
  double value = 0;                       // counters and gauges
  MetricDistribution distribution = {};   // histograms
};

struct MetricFamily {
  std::string name;
  std::string help;
  MetricType type = MetricType::kGauge;
  std::vector<std::string> label_names;
  // One for each combination of label values that there can be, zeros included.
  std::vector<MetricSample> samples;
};

// What a snapshot is taken of. Pointers are not null.
struct MetricSources {
  const Engine* engine = nullptr;
  const ModelRegistry* registry = nullptr;
  const BorderStats* border = nullptr;
  size_t open_streams = 0;
  size_t calls_in_flight = 0;
  bool serving = false;  // health of the data path
  bool draining = false;
  std::string version;
};

// Any thread; waits for nobody but leaf locks. Each number is read by itself: two that belong
// together may be a call apart. What the cache tells (sequences, pages, bytes) is as of the
// engine's last idle moment, or a few milliseconds old.
std::vector<MetricFamily> Snapshot(const MetricSources& sources);

}  // namespace attn::server
