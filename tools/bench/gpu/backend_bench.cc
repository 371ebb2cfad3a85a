#include "tools/bench/gpu/backend_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/backend/kv_store.h"
#include "attn/attention/cuda_backend.h"

namespace attn::bench {
namespace {

constexpr int32_t kNumPages = 33 * 512;
constexpr int32_t kSlabPages = 512;  // 32 MiB, as a server commits them
constexpr size_t kRows = 2048 + 32;

AttentionSpec Spec() {
  AttentionSpec spec;
  spec.num_q_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim_qk = spec.head_dim_v = 128;
  spec.activation_dtype = spec.kv_dtype = DType::kBFloat16;
  spec.page_size = 16;
  spec.score.softmax_scale = 0.08838834764831845f;
  return spec;
}

// Sequences in shuffled pages, with queries that their entries share.
class Workload {
 public:
  Workload(const KvStore& store, int num_sequences, int32_t len) : spec_(store.spec()) {
    const int32_t pages_each = (len + 15) / 16;
    order_.resize(static_cast<size_t>(pages_each) * static_cast<size_t>(num_sequences));
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(5));
    for (int i = 0; i < num_sequences; ++i) {
      chunks_.push_back(std::make_unique<const PageId*>(order_.data() + i * pages_each));
      tables_.push_back({chunks_.back().get(), 31, pages_each});
    }
    q_.assign(kRows * spec_.num_q_heads * 128, 0x3c00);
    out_.resize(kRows * spec_.num_q_heads * 128);
    lse_.resize(kRows * spec_.num_q_heads);
  }

  AttendEntry Entry(size_t sequence, int32_t q_len, int32_t kv_end, size_t first_row) {
    AttendEntry entry;
    entry.q = q_.data() + first_row * spec_.num_q_heads * 128;
    entry.out = out_.data() + first_row * spec_.num_q_heads * 128;
    entry.lse = lse_.data() + first_row * spec_.num_q_heads;
    entry.pages = tables_[sequence];
    entry.q_start = kv_end - q_len;
    entry.q_len = q_len;
    entry.kv_end = kv_end;
    entry.kv_head_end = spec_.num_kv_heads;
    entry.out_dtype = DType::kBFloat16;
    entry.row_class = ClassOf(static_cast<uint32_t>(q_len));
    return entry;
  }

 private:
  const AttentionSpec spec_;
  std::vector<PageId> order_;
  std::vector<std::unique_ptr<const PageId*>> chunks_;
  std::vector<PageList> tables_;
  std::vector<uint16_t> q_, out_;
  std::vector<float> lse_;
};

// Medians of the time to launch and of the whole way, in µs.
void BenchLaunch(Backend& backend, KvStore& store, const Batch& batch, const std::string& name) {
  std::vector<double> launches, wholes;
  for (int i = 0; i < 60; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Ticket ticket = Require(backend.Launch(store, batch));
    const auto launched = std::chrono::steady_clock::now();
    Require(backend.Wait(ticket));
    const auto end = std::chrono::steady_clock::now();
    if (i < 9) continue;
    launches.push_back(std::chrono::duration<double, std::micro>(launched - begin).count());
    wholes.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::sort(launches.begin(), launches.end());
  std::sort(wholes.begin(), wholes.end());
  Report("gpu_backend", name, "launch", launches[launches.size() / 2], "us");
  Report("gpu_backend", name, "launch and wait", wholes[wholes.size() / 2], "us");
}

void BenchDecodeSteps(Backend& backend, KvStore& store, Workload& work) {
  for (const auto& [rows, len] :
       std::vector<std::pair<size_t, int32_t>>{{1, 1024}, {1, 8192}, {32, 1024}, {32, 8192}}) {
    Batch batch;
    for (size_t i = 0; i < rows; ++i) batch.rows.push_back(work.Entry(i, 1, len, i));
    BenchLaunch(backend, store, batch, absl::StrCat("32/8 decode B", rows, " L", len));
  }
  Batch many;
  for (size_t i = 0; i < 1024; ++i) many.rows.push_back(work.Entry(i % 32, 1, 1024, i));
  BenchLaunch(backend, store, many, "32/8 decode B1024 L1024");
}

void BenchChunks(Backend& backend, KvStore& store, Workload& work) {
  for (const int32_t rows : {512, 2048}) {
    Batch chunk;
    chunk.rows.push_back(work.Entry(32, rows, rows, 32));
    BenchLaunch(backend, store, chunk, absl::StrCat("32/8 prefill of ", rows, " rows"));
    Batch mixed = chunk;
    for (size_t i = 0; i < 32; ++i) mixed.rows.push_back(work.Entry(i, 1, 8192, i));
    BenchLaunch(backend, store, mixed,
                absl::StrCat("32/8 prefill of ", rows, " rows beside decode B32 L8192"));
  }
}

}  // namespace

void BenchBackend(DeviceTimer& timer) {
  const std::unique_ptr<Backend> backend = Require(CreateCudaBackend({}));
  const std::unique_ptr<KvStore> store =
      Require(backend->CreateKvStore(Spec(), {.num_pages = kNumPages}));
  for (PageId first = 0; first < kNumPages; first += kSlabPages) {
    Require(store->CommitPages(first, std::min(kSlabPages, kNumPages - first)));
  }
  FillRandomBf16(static_cast<const cuda::CudaKvStore&>(*store).pool().base,
                 kNumPages * store->page_bytes() / 2, 2, timer.stream().get());
  Require(timer.stream().Synchronize());
  Workload work(*store, 33, 8192);
  BenchDecodeSteps(*backend, *store, work);
  BenchChunks(*backend, *store, work);
}

}  // namespace attn::bench
