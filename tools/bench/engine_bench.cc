// What the engine itself costs: nanoseconds per item for scheduling and building launches, and per
// call from the queue to its answer, with a backend that computes nothing. Then how much a decode
// step is delayed by a long prefill, and by a long append in one message, on the real CPU backend.
//
//   engine_bench [--commit=…] [--quick]
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "attn/base/check.h"
#include "attn/base/clock.h"
#include "server/core/engine.h"
#include "server/core/stream_scope.h"
#include "tools/bench/measurement.h"

namespace attn::server {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kQHeads = 8;
constexpr uint32_t kKvHeads = 2;
constexpr uint32_t kDim = 64;

// Pages without bytes.
class NullStore : public KvStore {
 public:
  NullStore(const AttentionSpec& spec, int32_t num_pages) : spec_(spec), num_pages_(num_pages) {}
  const AttentionSpec& spec() const override { return spec_; }
  int32_t num_pages() const override { return num_pages_; }
  int64_t page_bytes() const override { return 4096; }
  absl::Status CommitPages(PageId, int32_t) override { return absl::OkStatus(); }
  void ReleasePages(PageId, int32_t) override {}

 private:
  const AttentionSpec spec_;
  const int32_t num_pages_;
};

class NullBackend : public Backend {
 public:
  std::string device_name() const override { return "null"; }
  absl::Status Supports(const AttentionSpec&) const override { return absl::OkStatus(); }
  int64_t PageBytes(const AttentionSpec&) const override { return 4096; }
  absl::StatusOr<std::unique_ptr<KvStore>> CreateKvStore(const AttentionSpec& spec,
                                                         const KvStoreOptions& options) override {
    return std::make_unique<NullStore>(spec, options.num_pages);
  }
  absl::StatusOr<Ticket> Launch(KvStore&, const Batch&) override { return Ticket{.is_done = true}; }
  absl::Status Wait(Ticket) override { return absl::OkStatus(); }
  Cost CostOf(const AttentionSpec&, const AttendEntry& entry) const override {
    return {.attend_flops = 1e3 * entry.q_len, .moved_bytes = 1e3};
  }
  int32_t prefill_cut_rows() const override { return 16; }
};

// Keeps the last answers; called on the engine thread, which here is the only one or is waited for.
class LastAnswers : public CallSink {
 public:
  void Complete(std::unique_ptr<Call> call) override {
    const uint64_t id = call->id;
    calls.push_back(std::move(call));
    // Ids grow; a prefill that ends late must not hide a later call.
    last_id.store(std::max(id, last_id.load(std::memory_order_relaxed)), std::memory_order_release);
    last_id.notify_all();
  }
  std::vector<std::unique_ptr<Call>> calls;
  std::atomic<uint64_t> last_id{0};
};

ModelDefinition BenchModel() {
  ModelDefinition definition;
  definition.name = "bench";
  definition.num_layers = kLayers;
  definition.page_size = 16;
  definition.groups.resize(1);
  ModelGroup& group = definition.groups[0];
  for (uint32_t layer = 0; layer < kLayers; ++layer) group.layers.push_back(layer);
  group.spec.num_layers = kLayers;
  group.spec.num_q_heads = kQHeads;
  group.spec.num_kv_heads = kKvHeads;
  group.spec.head_dim_qk = group.spec.head_dim_v = kDim;
  group.spec.score.softmax_scale = 0.125f;
  return definition;
}

class Bench {
 public:
  explicit Bench(std::unique_ptr<Backend> backend)
      : engine_(Options(), std::move(backend), &registry_) {
    Take(Make(DeclareModelCall{BenchModel()}));
    model_ = registry_.FindByName("bench");
  }

  std::unique_ptr<Call> Make(Request request, std::shared_ptr<StreamScope> stream = nullptr) {
    auto call = std::make_unique<Call>();
    call->id = ++last_id_;
    call->request = std::move(request);
    call->stream = std::move(stream);
    call->arrival = Clock::Real().Now();
    call->sink = &answers_;
    return call;
  }
  void Push(std::unique_ptr<Call> call) {
    const absl::Status pushed = engine_.queue().Push(std::move(call));
    ATTN_CHECK(pushed.ok(), pushed.ToString());
  }
  // Steps by hand until everything is answered; the last answer.
  std::unique_ptr<Call> Take(std::unique_ptr<Call> call) {
    Push(std::move(call));
    while (engine_.StepByHand()) {
    }
    std::unique_ptr<Call> answer = std::move(answers_.calls.back());
    answers_.calls.clear();
    ATTN_CHECK(answer->status.ok(), answer->status.ToString());
    return answer;
  }
  std::vector<uint64_t> Open(size_t count) {
    OpenCall open;
    open.model = model_;
    open.owner = "bench";
    open.lease = 3600 * kSecond;
    open.items.resize(count);
    const auto answer = Take(Make(std::move(open)));
    std::vector<uint64_t> ids;
    for (const auto& id : std::get<OpenResult>(answer->result).items) ids.push_back(id->value);
    return ids;
  }
  // One appended token, or a prompt, for each of these (sequence, layer) pairs.
  AttendCall Attend(const std::vector<std::pair<uint64_t, uint32_t>>& pairs, uint32_t len,
                    uint32_t count = 1) const {
    AttendCall call;
    call.num_q_heads = kQHeads;
    call.num_kv_heads = kKvHeads;
    call.head_dim_qk = call.head_dim_v = kDim;
    for (const auto& [sequence, layer] : pairs) {
      AttendItem item;
      item.sequence.value = sequence;
      item.layer = layer;
      item.expected_len = len;
      item.q_len = item.kv_new_len = count;
      item.append_token = len + 1;
      item.q_row = item.kv_row = call.total_q;
      item.model = model_;
      call.items.push_back(item);
      call.total_q += count;
    }
    const auto rows = static_cast<size_t>(call.total_q);
    call.q.assign(rows * kQHeads * kDim * 4, '\0');
    call.k.assign(rows * kKvHeads * kDim * 4, '\0');
    call.v = call.k;
    return call;
  }

  Engine& engine() { return engine_; }
  LastAnswers& answers() { return answers_; }
  uint64_t last_id() const { return last_id_; }

 private:
  static EngineOptions Options() {
    EngineOptions options;
    options.kv_bytes = int64_t{1} << 30;
    return options;
  }

  ModelRegistry registry_;
  LastAnswers answers_;
  Engine engine_;
  ModelPtr model_;
  uint64_t last_id_ = 0;
};

void ReportNanos(const std::string& shape, const std::string& metric, double value,
                 const std::string& unit) {
  bench::Measurement measurement;
  measurement.bench = "engine";
  measurement.shape = shape;
  measurement.metric = metric;
  measurement.value = value;
  measurement.unit = unit;
  bench::Report(measurement);
}

// 256 one-token items a step, of `clients` streams and four layers, `items_per_call` in a call.
void MeasureScheduling(size_t items_per_call, uint32_t rounds) {
  Bench bench(std::make_unique<NullBackend>());
  constexpr size_t kItems = 256;
  const std::vector<uint64_t> sequences = bench.Open(kItems / kLayers);
  std::vector<std::shared_ptr<StreamScope>> streams(4);
  for (auto& stream : streams) stream = std::make_shared<StreamScope>();
  std::vector<double> nanos;
  for (uint32_t len = 0; len < rounds; ++len) {
    std::vector<std::pair<uint64_t, uint32_t>> pairs;
    for (size_t i = 0; i < kItems; ++i) {
      pairs.emplace_back(sequences[i / kLayers], static_cast<uint32_t>(i % kLayers));
      if (pairs.size() < items_per_call) continue;
      bench.Push(bench.Make(bench.Attend(pairs, len), streams[i % streams.size()]));
      pairs.clear();
    }
    const Nanos began = Clock::Real().Now();
    while (bench.answers().calls.size() < kItems / items_per_call) bench.engine().StepByHand();
    nanos.push_back(static_cast<double>(Clock::Real().Now() - began));
    bench.answers().calls.clear();
  }
  std::sort(nanos.begin(), nanos.end());
  const std::string shape = "256 one-token items, 4 layers, 4 clients, " +
                            std::to_string(items_per_call) + " items a call, null backend";
  ReportNanos(shape, "step time per item", nanos[nanos.size() / 2] / kItems, "ns");
  ReportNanos(shape, "step time per call",
              nanos[nanos.size() / 2] / kItems * static_cast<double>(items_per_call), "ns");
}

// One caller, one item a call, through the queue and the engine's thread and back.
void MeasureRoundTrip(uint32_t rounds) {
  Bench bench(std::make_unique<NullBackend>());
  const uint64_t sequence = bench.Open(1)[0];
  bench.engine().Start();
  std::vector<double> nanos;
  for (uint32_t len = 0; len < rounds; ++len) {
    auto call = bench.Make(bench.Attend({{sequence, 0}}, len));
    const uint64_t id = call->id;
    const Nanos began = Clock::Real().Now();
    bench.Push(std::move(call));
    for (uint64_t seen = 0; (seen = bench.answers().last_id.load()) < id;) {
      bench.answers().last_id.wait(seen);
    }
    nanos.push_back(static_cast<double>(Clock::Real().Now() - began));
  }
  bench.engine().Stop();
  std::sort(nanos.begin(), nanos.end());
  ReportNanos("one caller, one item, null backend", "round trip p50", nanos[nanos.size() / 2],
              "ns");
}

struct StepTimes {
  double p99 = 0;  // ms
  double largest = 0;
};

// One-token steps of all layers one after another, `rounds` of them or until `stop` says so.
template <typename Stop>
StepTimes TimeSteps(Bench& bench, uint64_t sequence, uint32_t rounds, uint32_t warm_up,
                    const Stop& stop) {
  std::vector<std::pair<uint64_t, uint32_t>> step;
  for (uint32_t layer = 0; layer < kLayers; ++layer) step.emplace_back(sequence, layer);
  std::vector<double> millis;
  for (uint32_t len = 0; len < rounds && !stop(); ++len) {
    auto call = bench.Make(bench.Attend(step, len));
    const uint64_t id = call->id;
    const Nanos began = Clock::Real().Now();
    bench.Push(std::move(call));
    for (uint64_t seen = 0; (seen = bench.answers().last_id.load()) < id;) {
      bench.answers().last_id.wait(seen);
    }
    millis.push_back(static_cast<double>(Clock::Real().Now() - began) * 1e-6);
  }
  ATTN_CHECK(millis.size() > warm_up, "only ", millis.size(), " steps were measured");
  millis.erase(millis.begin(), millis.begin() + warm_up);
  std::sort(millis.begin(), millis.end());
  return {.p99 = millis[millis.size() * 99 / 100], .largest = millis.back()};
}

// Alone, or beside a prefill of `prompt` tokens on the CPU backend.
StepTimes BesidePrefill(uint32_t prompt, uint32_t rounds) {
  Bench bench(CreateCpuBackend({}).value());
  const std::vector<uint64_t> sequences = bench.Open(2);
  auto prefill = bench.Make(bench.Attend({{sequences[1], 0}}, 0, std::max(prompt, 1u)));
  const auto cancelled = prefill->cancelled;
  if (prompt > 0) bench.Push(std::move(prefill));
  bench.engine().Start();
  // The first steps find an engine that does not know the device's speed.
  const StepTimes times = TimeSteps(bench, sequences[0], rounds, rounds / 10, [] { return false; });
  const bool ran_beside = prompt == 0 || bench.engine().queue().load().items > 0;
  ATTN_CHECK(ran_beside, "the prefill ended before the decode steps did");
  cancelled->store(true);
  bench.engine().Stop();
  return times;
}

// Beside appends of `tokens` tokens without rows, each in one message, until `repeats` are done.
StepTimes BesideAppends(uint32_t tokens, uint32_t repeats) {
  Bench bench(CreateCpuBackend({}).value());
  const std::vector<uint64_t> sequences = bench.Open(1 + repeats);
  for (uint32_t i = 0; i < repeats; ++i) {
    AttendCall append = bench.Attend({{sequences[1 + i], 0}}, 0, tokens);
    append.items[0].q_len = 0;
    append.total_q = 0;
    append.q.clear();
    bench.Push(bench.Make(std::move(append)));
  }
  bench.engine().Start();
  const StepTimes times = TimeSteps(bench, sequences[0], UINT32_MAX, 0,
                                    [&bench] { return bench.engine().queue().load().items == 0; });
  bench.engine().Stop();
  return times;
}

void ReportBeside(const std::string& what, const std::string& metric, double beside, double alone) {
  bench::Measurement measurement;
  measurement.bench = "engine";
  measurement.shape =
      "4 one-token items, beside " + what + ", chunk time 5 ms, fp32 8/2 heads D 64";
  measurement.metric = metric;
  measurement.value = beside;
  measurement.unit = "ms";
  measurement.rival = "alone";
  measurement.rival_value = alone;
  measurement.ratio = beside / alone;
  bench::Report(measurement);
}

void MeasureDecodeDelay(uint32_t tokens, uint32_t rounds, uint32_t appends) {
  const StepTimes alone = BesidePrefill(0, rounds);
  const StepTimes prefill = BesidePrefill(tokens, rounds);
  ReportBeside("a " + std::to_string(tokens) + "-token prefill", "decode p99", prefill.p99,
               alone.p99);
  const StepTimes append = BesideAppends(tokens, appends);
  const std::string what = "appends of " + std::to_string(tokens) + " tokens in one message each";
  ReportBeside(what, "decode p99", append.p99, alone.p99);
  ReportBeside(what, "slowest decode step", append.largest, alone.p99);
}

int Main(int argc, char** argv) {
  bench::StartMeasurements(argc, argv);
  const bool quick =
      std::any_of(argv, argv + argc, [](const char* arg) { return !std::strcmp(arg, "--quick"); });
  const uint32_t rounds = quick ? 50 : 1000;
  MeasureScheduling(256, rounds);
  MeasureScheduling(4, rounds);
  MeasureScheduling(1, rounds);
  MeasureRoundTrip(quick ? 100 : 20000);
  MeasureDecodeDelay(quick ? 8192 : 131072, quick ? 20 : 500, quick ? 2 : 4);
  return 0;
}

}  // namespace
}  // namespace attn::server

int main(int argc, char** argv) {
  // As in attn-server: else fresh pages for the rows of large calls are most of what is measured.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  return attn::server::Main(argc, argv);
}
