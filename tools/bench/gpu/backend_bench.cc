#include "tools/bench/gpu/backend_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/backend/batch_cutter.h"
#include "attention/cuda/backend/bulk_copy.h"
#include "attention/cuda/backend/kv_store.h"
#include "attention/cuda/backend/step_builder.h"
#include "attention/cuda/backend/step_kernels.h"
#include "attention/cuda/cuda_status.h"
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

// The decode kernels of one step, whose pages lie in a store's slabs or in one allocation.
class DecodeOnDevice {
 public:
  DecodeOnDevice(const cuda::CudaKvStore& store, uint8_t* pool, const Batch& batch)
      : pool_(store.pool()),
        context_{&store.spec(), &pool_, &store.score(), kLimits, &copier_},
        image_(Require(cuda::DeviceBuffer::Create(kLimits.upload_bytes))),
        outputs_(Require(cuda::DeviceBuffer::Create(kLimits.output_bytes))),
        workspace_(Require(cuda::DeviceBuffer::Create(kLimits.workspace_bytes))) {
    pool_.base = pool;
    cuda::BatchCutter cutter(kLimits);
    Require(cutter.Cut(store.spec(), store.score(), batch));
    std::vector<uint8_t> image(static_cast<size_t>(kLimits.upload_bytes));
    BuildStep(context_, batch, cutter.step(0), {image.data(), image_.data(), outputs_.data()},
              &step_);
    Require(ATTN_CUDA_STATUS(
        cudaMemcpy(image_.data(), image.data(), image.size(), cudaMemcpyHostToDevice)));
  }

  void Queue(cudaStream_t stream) const {
    Require(QueueDecode(context_, step_, workspace_.data(), stream));
  }

 private:
  static constexpr cuda::StepLimits kLimits{int64_t{8} << 20, int64_t{8} << 20, int64_t{64} << 20,
                                            132};
  cuda::KvPool pool_;
  cuda::BulkCopier copier_{1};
  const cuda::StepContext context_;
  cuda::DeviceBuffer image_, outputs_, workspace_;
  cuda::Step step_;
};

void BenchPools(DeviceTimer& timer, const cuda::CudaKvStore& store, Workload& work) {
  const auto bytes = static_cast<size_t>(kNumPages * store.page_bytes());
  const cuda::DeviceBuffer whole = Require(cuda::DeviceBuffer::Create(bytes));
  FillRandomBf16(whole.data(), static_cast<int64_t>(bytes / 2), 2, timer.stream().get());
  for (const size_t rows : {1, 8, 32}) {
    Batch batch;
    for (size_t i = 0; i < rows; ++i) batch.rows.push_back(work.Entry(i, 1, 8192, i));
    const std::string name = absl::StrCat("32/8 decode kernels B", rows, " L8192");
    const DecodeOnDevice slabs(store, store.pool().base, batch);
    const DecodeOnDevice one(store, whole.data(), batch);
    for (const char* again : {"", " again"}) {
      Report("gpu_backend", name, absl::StrCat("pool in slabs", again).c_str(),
             timer.ColdUs([&](cudaStream_t stream) { slabs.Queue(stream); }, 41), "us");
      Report("gpu_backend", name, absl::StrCat("pool in one allocation", again).c_str(),
             timer.ColdUs([&](cudaStream_t stream) { one.Queue(stream); }, 41), "us");
    }
  }
}

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
  BenchPools(timer, static_cast<const cuda::CudaKvStore&>(*store), work);
  BenchDecodeSteps(*backend, *store, work);
  BenchChunks(*backend, *store, work);
}

}  // namespace attn::bench
