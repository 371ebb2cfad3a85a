// What the engine adds to an attention that another program could ask the backend for itself: the
// time of one call of one tiny item through attn::engine::Engine, blocking and by callback, beside
// Launch and Wait of the same batch on a bare backend. Rounds of both alternate, so that whatever
// slows the machine slows both.
//
//   embed_bench [--commit=…] [--quick]
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/attention/cpu_backend.h"
#include "attn/base/check.h"
#include "attn/base/clock.h"
#include "attn/engine/engine.h"
#include "tools/bench/measurement.h"

namespace attn::engine {
namespace {

constexpr uint32_t kDim = 64;
constexpr uint32_t kKeys = 64;
constexpr uint32_t kPageSize = 16;
constexpr int kCallsPerRound = 200;

AttentionSpec BenchSpec() {
  AttentionSpec spec;
  spec.head_dim_qk = spec.head_dim_v = kDim;
  spec.page_size = kPageSize;
  spec.score.softmax_scale = 0.125f;
  return spec;
}

std::unique_ptr<Backend> OneThread() { return CreateCpuBackend({.num_threads = 1}).value(); }

// Keys, values, one query row and room for its output.
struct Tensors {
  std::vector<float> k = std::vector<float>(kKeys * kDim, 0.25f);
  std::vector<float> v = std::vector<float>(kKeys * kDim, 0.5f);
  std::vector<float> q = std::vector<float>(kDim, 1.0f);
  std::vector<float> out = std::vector<float>(kDim);
};

// One row over the keys, by Launch and Wait.
class BareBackend {
 public:
  BareBackend() : backend_(OneThread()) {
    store_ = backend_->CreateKvStore(BenchSpec(), {.num_pages = kKeys / kPageSize}).value();
    ATTN_CHECK(store_->CommitPages(0, kKeys / kPageSize).ok(), "no memory for pages");
    for (PageId page = 0; page < PageId{kKeys / kPageSize}; ++page) pages_.push_back(page);
    chunk_ = pages_.data();
    const PageList list = {.chunks = &chunk_, .num_pages = static_cast<int32_t>(pages_.size())};
    batch_.appends.push_back(
        {.k = tensors_.k.data(), .v = tensors_.v.data(), .pages = list, .count = kKeys});
    Run();
    batch_.appends.clear();
    AttendEntry row;
    row.q = tensors_.q.data();
    row.out = tensors_.out.data();
    row.pages = list;
    row.q_start = kKeys - 1;
    row.q_len = 1;
    row.kv_end = kKeys;
    row.kv_head_end = 1;
    batch_.rows.push_back(row);
  }

  void Run() {
    const Ticket ticket = backend_->Launch(*store_, batch_).value();
    ATTN_CHECK(backend_->Wait(ticket).ok(), "the launch failed");
  }
  const std::vector<float>& out() const { return tensors_.out; }

 private:
  Tensors tensors_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvStore> store_;
  std::vector<PageId> pages_;
  const PageId* chunk_ = nullptr;
  Batch batch_;
};

// The same row through the engine.
class Embedded {
 public:
  explicit Embedded(Drive drive) {
    engine_ = Engine::Create({.drive = drive, .kv_bytes = 16 << 20}, OneThread()).value();
    const LayerGroup group = {.layers = {0}, .spec = BenchSpec()};
    const auto declared = engine_->DeclareModel(
        {.name = "bench", .num_layers = 1, .page_size = kPageSize, .layer_groups = {group}});
    ATTN_CHECK(declared.ok(), declared.status().ToString());
    item_.sequence = engine_->Open("bench", "bench").value();
    item_.kv_new_len = kKeys;
    request_.items = {&item_, 1};
    request_.k = BytesOf(tensors_.k);
    request_.v = BytesOf(tensors_.v);
    Block();
    item_.kv_new_len = 0;
    item_.q_len = 1;
    request_.k = request_.v = {};
    request_.q = BytesOf(tensors_.q);
    request_.out = WritableBytesOf(tensors_.out);
  }

  void Block() { Expect(engine_->Attend(request_)); }
  void CallBack() {
    bool done = false;
    const auto submitted =
        engine_->Submit(request_, [&](const absl::StatusOr<AttendResult>& result) {
          Expect(result);
          done = true;
        });
    ATTN_CHECK(submitted.ok(), submitted.ToString());
    while (!done) engine_->Poll();
  }
  const std::vector<float>& out() const { return tensors_.out; }

 private:
  static void Expect(const absl::StatusOr<AttendResult>& result) {
    ATTN_CHECK(result.ok() && result->FirstError().ok(), "the call failed");
  }

  Tensors tensors_;
  std::unique_ptr<Engine> engine_;
  AttendItem item_;
  AttendRequest request_;
};

double MedianOf(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Times single calls, ns.
void Round(const std::function<void()>& call, std::vector<double>* times) {
  for (int i = 0; i < kCallsPerRound; ++i) {
    const Nanos began = Clock::Real().Now();
    call();
    times->push_back(static_cast<double>(Clock::Real().Now() - began));
  }
}

void Compare(const std::string& how, const std::function<void()>& call, BareBackend& bare,
             int rounds) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < rounds; ++round) {
    Round(call, &ours);
    Round([&] { bare.Run(); }, &theirs);
  }
  const double value = MedianOf(ours);
  const double rival = MedianOf(theirs);
  bench::Measurement line;
  line.bench = "embed";
  line.shape =
      absl::StrCat(how, ", 1 row x ", kKeys, " keys, fp32 1/1 heads D ", kDim, ", 1 thread");
  line.metric = "added to the bare backend call, p50";
  line.value = value - rival;
  line.unit = "ns";
  bench::Report(line);
  line.metric = "call p50";
  line.value = value;
  line.rival = "bare backend call";
  line.rival_value = rival;
  line.ratio = value / rival;
  bench::Report(line);
}

void Run(int rounds) {
  BareBackend bare;
  bare.Run();
  Embedded callers(Drive::kCallers);
  Compare(
      "blocking call, callers step", [&] { callers.Block(); }, bare, rounds);
  Compare(
      "callback and Poll, callers step", [&] { callers.CallBack(); }, bare, rounds);
  Embedded thread(Drive::kOwnThread);
  Compare(
      "blocking call, engine's own thread", [&] { thread.Block(); }, bare, rounds);
  ATTN_CHECK(callers.out() == bare.out() && thread.out() == bare.out(), "outputs differ");
}

}  // namespace
}  // namespace attn::engine

int main(int argc, char** argv) {
  attn::bench::StartMeasurements(argc, argv);
  bool quick = false;
  for (int i = 1; i < argc; ++i) quick = quick || std::strcmp(argv[i], "--quick") == 0;
  attn::engine::Run(quick ? 2 : 200);
}
