#include "tools/bench/gpu/prefill_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/forward/launch.h"
#include "attention/cuda/forward/plan.h"
#include "attention/score/online_softmax.h"

namespace attn::bench {
namespace {

constexpr int kTotalRows = 16384;
constexpr int kDim = cuda::kKvHeadDim;
constexpr int kColdRepeats = 21;
constexpr double kSustainedSeconds = 0.4;
// Of one SM: bf16 multiply-adds counted twice.
constexpr double kFlopsPerSmAndClock = 4096;

struct PrefillShape {
  int num_q_heads;
  int num_kv_heads;
  std::vector<int32_t> lengths;
  bool is_causal;
  int page_size;  // 0: contiguous, one page per sequence
  std::optional<uint32_t> left;
  float soft_cap = 0.0f;

  std::string Name() const {
    std::string name =
        absl::StrCat(num_q_heads, "/", num_kv_heads, is_causal ? " causal" : " none");
    if (lengths.size() > 1 && lengths.front() != lengths.back()) {
      absl::StrAppend(&name, " varlen");
    } else {
      absl::StrAppend(&name, " S", lengths[0], " B", lengths.size());
    }
    if (left.has_value()) absl::StrAppend(&name, " left ", *left);
    if (soft_cap > 0) absl::StrAppend(&name, " soft cap");
    return absl::StrCat(name, page_size == 0 ? " contiguous" : absl::StrCat(" page ", page_size));
  }
};

class PrefillRun {
 public:
  PrefillRun(const PrefillShape& shape, cudaStream_t stream);
  void Queue(cudaStream_t stream) const {
    Require(cuda::LaunchForward(*instance_, args_, NumSms(), stream));
  }
  double Flops() const;
  double BusyPercent() const;

 private:
  void MakePool();
  std::vector<cuda::EntryRecord> MakeEntries();

  PrefillShape shape_;
  cuda::KvPool pool_;
  cuda::LaunchScore score_;
  std::vector<cuda::EntryRecord> entries_;
  std::vector<cuda::DeviceBuffer> buffers_;
  cuda::DeviceBuffer cycles_;
  const cuda::ForwardInstance* instance_ = nullptr;
  cuda::ForwardArgs args_;
};

PrefillRun::PrefillRun(const PrefillShape& shape, cudaStream_t stream) : shape_(shape) {
  MakePool();
  FillRandomBf16(pool_.base, pool_.num_pages * pool_.page_bytes() / 2, 2, stream);
  const int64_t total_q = std::accumulate(shape.lengths.begin(), shape.lengths.end(), int64_t{0});
  const size_t q_bytes = static_cast<size_t>(total_q) * shape.num_q_heads * kDim * 2;
  cuda::DeviceBuffer q = Require(cuda::DeviceBuffer::Create(q_bytes));
  FillRandomBf16(q.data(), static_cast<int64_t>(q_bytes) / 2, 3, stream);
  score_.natural_scale = 0.08838834764831845f;
  if (shape.soft_cap > 0) {
    score_.op = {shape.soft_cap, score_.natural_scale / shape.soft_cap};
    score_.natural_scale = 1.0f;
  }
  score_.log2_scale = score_.natural_scale * score::kLog2E;
  if (shape.left.has_value()) score_.range.left = *shape.left;
  entries_ = MakeEntries();
  const std::vector<cuda::ForwardItem> items =
      cuda::PlanForward(pool_, score_, shape.num_q_heads, entries_);
  cuda::DeviceBuffer entries = OnDevice(entries_);
  cuda::DeviceBuffer device_items = OnDevice(items);
  cuda::DeviceBuffer counter = OnDevice(std::vector<int32_t>{0});
  cycles_ = OnDevice(std::vector<int64_t>(NumSms(), 0));
  cuda::ForwardLaunch launch;
  launch.pool = pool_;
  launch.score = score_;
  launch.q = q.data();
  launch.total_q = total_q;
  launch.num_q_heads = shape.num_q_heads;
  launch.entries = entries.as<cuda::EntryRecord>();
  launch.items = device_items.as<cuda::ForwardItem>();
  launch.num_items = static_cast<int32_t>(items.size());
  launch.next_item = counter.as<int32_t>();
  launch.cta_cycles = cycles_.as<int64_t>();
  instance_ = &cuda::SelectForward(pool_.page_size);
  args_ = Require(cuda::MakeForwardArgs(launch));
  buffers_.push_back(std::move(q));
  buffers_.push_back(std::move(entries));
  buffers_.push_back(std::move(device_items));
  buffers_.push_back(std::move(counter));
  Require(ATTN_CUDA_STATUS(cudaDeviceSynchronize()));
}

void PrefillRun::MakePool() {
  const int32_t longest = *std::max_element(shape_.lengths.begin(), shape_.lengths.end());
  pool_.page_size = shape_.page_size == 0 ? longest : shape_.page_size;
  pool_.num_kv_heads = shape_.num_kv_heads;
  for (const int32_t length : shape_.lengths) {
    pool_.num_pages += (length + pool_.page_size - 1) / pool_.page_size;
  }
  cuda::DeviceBuffer pages = Require(
      cuda::DeviceBuffer::Create(static_cast<size_t>(pool_.num_pages * pool_.page_bytes())));
  pool_.base = pages.data();
  buffers_.push_back(std::move(pages));
}

std::vector<cuda::EntryRecord> PrefillRun::MakeEntries() {
  std::vector<int32_t> pages(pool_.num_pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
  cuda::DeviceBuffer table = OnDevice(pages);
  std::vector<cuda::EntryRecord> entries;
  int64_t row = 0;
  int32_t page = 0;
  for (const int32_t length : shape_.lengths) {
    const size_t rows = static_cast<size_t>(length) * shape_.num_q_heads;
    cuda::DeviceBuffer out = Require(cuda::DeviceBuffer::Create(rows * kDim * 2));
    cuda::DeviceBuffer lse = Require(cuda::DeviceBuffer::Create(rows * sizeof(float)));
    cuda::EntryRecord entry;
    entry.page_table = table.as<int32_t>() + page;
    entry.out = out.data();
    entry.lse = lse.as<float>();
    entry.q_row = row;
    entry.q_len = length;
    entry.kv_end = length;
    entry.kv_head_end = static_cast<int16_t>(shape_.num_kv_heads);
    entry.is_causal = shape_.is_causal;
    entries.push_back(entry);
    row += length;
    page += (length + pool_.page_size - 1) / pool_.page_size;
    buffers_.push_back(std::move(out));
    buffers_.push_back(std::move(lse));
  }
  buffers_.push_back(std::move(table));
  return entries;
}

double PrefillRun::Flops() const {
  double pairs = 0;
  for (const cuda::EntryRecord& entry : entries_) {
    // Causal counts half a square, as everybody does.
    pairs += shape_.is_causal && !shape_.left.has_value()
                 ? 0.5 * entry.q_len * entry.kv_end
                 : static_cast<double>(score_.RangeOf(entry).PairsOf(entry.q_start, entry.q_len));
  }
  return 4.0 * kDim * shape_.num_q_heads * pairs;
}

double PrefillRun::BusyPercent() const {
  std::vector<int64_t> cycles(NumSms());
  Require(ATTN_CUDA_STATUS(
      cudaMemcpy(cycles.data(), cycles_.data(), cycles_.bytes(), cudaMemcpyDeviceToHost)));
  const double sum = std::accumulate(cycles.begin(), cycles.end(), 0.0);
  return 100.0 * Flops() / (kFlopsPerSmAndClock * sum);
}

void BenchCold(DeviceTimer& timer, const PrefillShape& shape) {
  const PrefillRun run(shape, timer.stream().get());
  const Call call = [&run](cudaStream_t stream) { run.Queue(stream); };
  const double us = timer.ColdUs(call, kColdRepeats);
  Report("gpu_prefill", shape.Name(), "cold", run.Flops() / us / 1e6, "TFLOP/s");
  Report("gpu_prefill", shape.Name(), "tensor busy", run.BusyPercent(), "%");
}

void BenchSustained(DeviceTimer& timer, const PrefillShape& shape) {
  const PrefillRun run(shape, timer.stream().get());
  const Call call = [&run](cudaStream_t stream) { run.Queue(stream); };
  const double us = timer.SustainedUs(call, kSustainedSeconds);
  Report("gpu_prefill", shape.Name(), "sustained", run.Flops() / us / 1e6, "TFLOP/s");
}

std::vector<int32_t> Equal(int32_t length) {
  return std::vector<int32_t>(static_cast<size_t>(kTotalRows / length), length);
}

std::vector<PrefillShape> Shapes(bool is_quick) {
  const std::vector<int32_t> mix = {8192, 4096, 2048, 1024, 512, 256, 128, 128};
  const std::vector<int32_t> lengths =
      is_quick ? std::vector<int32_t>{2048, 4096} : std::vector<int32_t>{512, 2048, 4096, 16384};
  std::vector<PrefillShape> shapes;
  for (const auto& [q_heads, kv_heads] : std::vector<std::pair<int, int>>{{16, 16}, {32, 8}}) {
    for (const bool is_causal : {false, true}) {
      for (const int32_t length : lengths) {
        shapes.push_back({q_heads, kv_heads, Equal(length), is_causal, 0, {}});
      }
    }
    shapes.push_back({q_heads, kv_heads, mix, true, 64, {}});
  }
  for (const int page_size : {64, 16, 8, 4}) {
    shapes.push_back({32, 8, Equal(4096), true, page_size, {}});
    shapes.push_back({32, 8, Equal(4096), false, page_size, {}});
  }
  shapes.push_back({32, 8, Equal(16384), true, 0, 1023});
  shapes.push_back({32, 8, Equal(4096), true, 0, {}, 50.0f});
  return shapes;
}

}  // namespace

// All cold calls come first: after a sustained load the card stays at the clock of its power limit
// for a while.
void BenchPrefill(DeviceTimer& timer, bool is_quick) {
  const std::vector<PrefillShape> shapes = Shapes(is_quick);
  for (const PrefillShape& shape : shapes) BenchCold(timer, shape);
  for (const PrefillShape& shape : shapes) BenchSustained(timer, shape);
}

}  // namespace attn::bench
