// What the cache's bookkeeping costs: pages in and out of a pool, appends, forks. --quick measures
// once where it otherwise takes the best of several runs (the median, for forks).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attn/base/check.h"
#include "attn/kvcache/kv_cache.h"
#include "kvcache/src/page_pool.h"
#include "tools/bench/measurement.h"

namespace attn::bench {
namespace {

using kvcache::CacheGroup;
using kvcache::KvCache;
using kvcache::PagePool;
using kvcache::Reservation;

constexpr int32_t kNumPages = 1 << 20;
constexpr int32_t kPagesPerSlab = 128;
constexpr uint32_t kPageSize = 16;
constexpr uint32_t kLongLen = 128 << 10;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ReportAgainstBar(const std::string& shape, const std::string& metric, double value,
                      const std::string& unit, double bar) {
  Report({.bench = "cache",
          .shape = shape,
          .metric = metric,
          .value = value,
          .unit = unit,
          .rival = "bar",
          .rival_value = bar,
          .ratio = value / bar});
}

// Pushes everything out of the caches that this process could find there again. Larger than the
// last-level cache of any machine this is measured on (300 MiB).
void FlushCaches() {
  static std::vector<char> buffer(size_t{512} << 20);
  static char salt = 0;
  std::memset(buffer.data(), ++salt, buffer.size());
  uint64_t sum = 0;
  for (size_t i = 0; i < buffer.size(); i += 64) sum += static_cast<unsigned char>(buffer[i]);
  ATTN_CHECK(sum == buffer.size() / 64 * static_cast<unsigned char>(salt), "sum ", sum);
}

void MeasureRandomOrder(int num_runs) {
  PagePool pool({.model = ModelSlot(1), .group = 0, .page_bytes = 1 << 16},
                {.num_pages = kNumPages, .pages_per_slab = kPagesPerSlab});
  while (pool.num_unbacked_slabs() > 0) pool.BackSlab();
  std::vector<PageId> pages(kNumPages);
  std::mt19937_64 random(1);
  double best = 0;
  for (int run = 0; run <= num_runs; ++run) {  // run 0 only brings disorder into the free lists
    double seconds = -Seconds();
    for (PageId& page : pages) page = pool.Acquire();
    seconds += Seconds();
    std::shuffle(pages.begin(), pages.end(), random);
    seconds -= Seconds();
    for (const PageId page : pages) pool.Release(page);
    seconds += Seconds();
    if (run > 0) best = std::max(best, 2.0 * kNumPages / seconds);
  }
  ReportAgainstBar("page pool, 1 M pages, random free order", "acquires and releases", best, "1/s",
                   10e6);
}

void MeasureHotLifo(int num_runs) {
  constexpr int kPairs = 10'000'000;
  PagePool pool({.model = ModelSlot(1), .group = 0, .page_bytes = 1 << 16},
                {.num_pages = kNumPages, .pages_per_slab = kPagesPerSlab});
  while (pool.num_unbacked_slabs() > 0) pool.BackSlab();
  pool.Acquire();
  double best = 0;
  int64_t sum = 0;
  for (int run = 0; run < num_runs; ++run) {
    double seconds = -Seconds();
    for (int i = 0; i < kPairs; ++i) {
      const PageId page = pool.Acquire();
      sum += page;
      pool.Release(page);
    }
    seconds += Seconds();
    best = std::max(best, 2.0 * kPairs / seconds);
  }
  ATTN_CHECK(sum > 0, "no page but 0");
  ReportAgainstBar("page pool, 1 M pages, last freed first", "acquires and releases", best, "1/s",
                   100e6);
}

ModelSlot AddModel(KvCache& cache, uint32_t num_layers, uint32_t page_size) {
  CacheGroup group{.layers = std::vector<uint32_t>(num_layers), .page_bytes = 1 << 16};
  std::iota(group.layers.begin(), group.layers.end(), 0u);
  return cache.AddModel({.num_layers = num_layers, .page_size = page_size, .groups = {group}})
      .value();
}

struct Appends {
  uint32_t num_sequences = 1;
  uint32_t num_layers = 1;
  uint32_t page_size = kPageSize;
  uint32_t len = 0;    // to start with
  uint32_t count = 0;  // per layer
};

// Nanoseconds for each Extend and Commit of one token, step by step over sequences and layers.
double TimeAppends(const Appends& appends) {
  KvCache cache({.budget_bytes = int64_t{64} << 30});
  const ModelSlot model = AddModel(cache, appends.num_layers, appends.page_size);
  std::vector<SequenceId> ids;
  uint64_t token = 0;
  for (uint32_t s = 0; s < appends.num_sequences; ++s) {
    ids.push_back(cache.Open({.model = model, .owner = "bench"}, 0).value());
    for (uint32_t l = 0; l < appends.num_layers; ++l) {
      cache.Extend({.sequence = ids[s], .layer = l, .count = appends.len, .append_token = ++token})
          .value()
          .Commit();
    }
  }
  double seconds = -Seconds();
  for (uint32_t len = appends.len; len < appends.len + appends.count; ++len) {
    for (uint32_t l = 0; l < appends.num_layers; ++l) {
      for (const SequenceId id : ids) {
        absl::StatusOr<Reservation> reservation = cache.Extend(
            {.sequence = id, .layer = l, .expected_len = len, .count = 1, .append_token = ++token});
        ATTN_CHECK(reservation.ok(), reservation.status().ToString());
        reservation->Commit();
      }
    }
  }
  seconds += Seconds();
  return 1e9 * seconds / (double{1} * appends.num_sequences * appends.num_layers * appends.count);
}

double BestAppend(int num_runs, const Appends& appends) {
  double best = TimeAppends(appends);
  for (int run = 1; run < num_runs; ++run) best = std::min(best, TimeAppends(appends));
  return best;
}

void MeasureAppends(int num_runs) {
  constexpr uint32_t kHugePage = 1 << 20;
  constexpr double kBarNs = 100;
  ReportAgainstBar(
      "extend and commit of 1 token without a new page, 1 sequence, 1 layer", "time per append",
      BestAppend(num_runs, {.page_size = kHugePage, .len = 1, .count = 500'000}), "ns", kBarNs);
  ReportAgainstBar(
      "extend and commit of 1 token without a new page, 256 sequences, 32 layers",
      "time per append",
      BestAppend(
          num_runs,
          {.num_sequences = 256, .num_layers = 32, .page_size = kHugePage, .len = 1, .count = 100}),
      "ns", kBarNs);
  Measurement with_new_pages;
  with_new_pages.bench = "cache";
  with_new_pages.shape =
      "extend and commit of 1 token, page 16, new pages included, 256 sequences, 32 layers";
  with_new_pages.metric = "time per append";
  with_new_pages.value =
      BestAppend(num_runs, {.num_sequences = 256, .num_layers = 32, .len = 1000, .count = 100});
  with_new_pages.unit = "ns";
  Report(with_new_pages);
}

// Microseconds per child, caches flushed before; `at_len` of a sequence of kLongLen tokens.
double TimeFork(uint32_t at_len, size_t num_children) {
  KvCache cache({.budget_bytes = int64_t{64} << 30});
  const ModelSlot model = AddModel(cache, 4, kPageSize);
  const SequenceId parent = cache.Open({.model = model, .owner = "bench"}, 0).value();
  for (uint32_t l = 0; l < 4; ++l) {
    cache.Extend({.sequence = parent, .layer = l, .count = kLongLen, .append_token = 1})
        .value()
        .Commit();
  }
  std::vector<SequenceId> children;
  for (size_t i = 0; i < num_children; ++i) children.push_back(cache.NextId(model));
  FlushCaches();
  double seconds = -Seconds();
  const absl::Status forked = cache.Fork(parent, at_len, children);
  seconds += Seconds();
  ATTN_CHECK(forked.ok(), forked.ToString());
  return 1e6 * seconds / static_cast<double>(num_children);
}

void MeasureForks(int num_runs) {
  struct Case {
    std::string what;
    uint32_t at_len;
    size_t num_children;
  };
  for (const Case& c : std::vector<Case>{{"whole, 1 child", kLongLen, 1},
                                         {"whole, 8 children", kLongLen, 8},
                                         {"at 128K - 16, 1 child", kLongLen - kPageSize, 1}}) {
    std::vector<double> times;
    for (int run = 0; run < num_runs; ++run) times.push_back(TimeFork(c.at_len, c.num_children));
    std::nth_element(times.begin(), times.begin() + num_runs / 2, times.end());
    ReportAgainstBar("fork of 128K tokens, page 16, cold, " + c.what, "time per child",
                     times[static_cast<size_t>(num_runs / 2)], "us", 20);
  }
}

void MeasureList(int num_runs) {
  constexpr int kSequences = 65536;
  KvCache cache({.budget_bytes = int64_t{1} << 30, .max_sequences = kSequences});
  const ModelSlot model = AddModel(cache, 4, kPageSize);
  for (int i = 0; i < kSequences; ++i) {
    cache.Open({.model = model, .owner = "owner " + std::to_string(i % 64)}, 0).value();
  }
  double best = 1e9;
  for (int run = 0; run < num_runs; ++run) {
    FlushCaches();
    double seconds = -Seconds();
    const size_t listed = cache.List({.owner = "owner 7", .max = 1000}, 0).size();
    seconds += Seconds();
    ATTN_CHECK(listed == 1000, "listed ", listed);
    best = std::min(best, seconds);
  }
  Measurement list;
  list.bench = "cache";
  list.shape = "list of 1000 sequences of one owner of 64, 65,536 open, cold";
  list.metric = "time";
  list.value = 1e3 * best;
  list.unit = "ms";
  Report(list);
}

void Measure(bool quick) {
  const int num_runs = quick ? 1 : 7;
  MeasureRandomOrder(num_runs);
  MeasureHotLifo(num_runs);
  MeasureAppends(num_runs);
  MeasureForks(num_runs);
  MeasureList(num_runs);
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  attn::bench::StartMeasurements(argc, argv);
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument.rfind("--commit=", 0) != 0) {
      std::fprintf(stderr, "%s: got %s, want --quick or --commit=…\n", argv[0], argv[i]);
      return 1;
    }
  }
  attn::bench::Measure(quick);
  return 0;
}
