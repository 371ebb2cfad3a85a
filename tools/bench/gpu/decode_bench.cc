#include "tools/bench/gpu/decode_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/launch.h"
#include "attention/cuda/decode/plan.h"
#include "attention/score/online_softmax.h"
#include "attn/base/check.h"

namespace attn::bench {
namespace {

constexpr int kDim = cuda::kKvHeadDim;
constexpr int kNumQHeads = 32;
constexpr int kNumKvHeads = 8;
constexpr int kColdRepeats = 21;
constexpr double kRotatingBytes = 3 * 60e6;  // three times L2
constexpr int kRotatingCalls = 8;

struct DecodeShape {
  std::vector<int32_t> lengths;
  int page_size;
  int q_len = 1;
  std::string name;
  std::optional<int> extent_log2;  // absent: as planned
};

// One set of sequences in a pool that several sets share, so that calls may rotate.
class DecodeRun {
 public:
  DecodeRun(const DecodeShape& shape, const cuda::KvPool& pool, const int32_t* pages,
            cudaStream_t stream);
  void Queue(cudaStream_t stream) const {
    Require(cuda::LaunchDecode(cuda::SelectDecode(args_.pool.page_size), args_,
                               static_cast<int>(plan_.items.size()),
                               static_cast<int>(plan_.combines.size()), stream));
  }
  // Host time to plan and to launch once, without the copy of the plan.
  double PlanAndLaunchUs(const DeviceTimer& timer) const;

 private:
  DecodeShape shape_;
  cuda::LaunchScore score_;
  std::vector<cuda::EntryRecord> entries_;
  cuda::DecodePlan plan_;
  std::vector<cuda::DeviceBuffer> buffers_;
  cuda::DecodeArgs args_;
};

DecodeRun::DecodeRun(const DecodeShape& shape, const cuda::KvPool& pool, const int32_t* pages,
                     cudaStream_t stream)
    : shape_(shape) {
  score_.natural_scale = 0.08838834764831845f;
  score_.log2_scale = score_.natural_scale * score::kLog2E;
  const size_t rows = shape.lengths.size() * shape.q_len * kNumQHeads;
  cuda::DeviceBuffer q = Require(cuda::DeviceBuffer::Create(rows * kDim * 2));
  cuda::DeviceBuffer out = Require(cuda::DeviceBuffer::Create(rows * kDim * 2));
  cuda::DeviceBuffer lse = Require(cuda::DeviceBuffer::Create(rows * sizeof(float)));
  FillRandomBf16(q.data(), static_cast<int64_t>(rows) * kDim, 4, stream);
  int64_t row = 0;
  for (const int32_t length : shape.lengths) {
    cuda::EntryRecord entry;
    entry.page_table = pages;
    entry.out = out.data() + row * kNumQHeads * kDim * 2;
    entry.lse = lse.as<float>() + row * kNumQHeads;
    entry.q_row = row;
    entry.q_start = length - shape.q_len;
    entry.q_len = shape.q_len;
    entry.kv_end = length;
    entry.kv_head_end = kNumKvHeads;
    entries_.push_back(entry);
    row += shape.q_len;
    pages += (length + shape.page_size - 1) / shape.page_size;
  }
  plan_ = shape.extent_log2.has_value()
              ? cuda::PlanDecodeWithExtent(pool, score_, kNumQHeads, entries_, *shape.extent_log2)
              : cuda::PlanDecode(pool, score_, kNumQHeads, entries_, NumSms());
  cuda::DeviceBuffer entries = OnDevice(entries_);
  cuda::DeviceBuffer items = OnDevice(plan_.items);
  cuda::DeviceBuffer combines = OnDevice(plan_.combines);
  cuda::DeviceBuffer workspace = Require(cuda::DeviceBuffer::Create(static_cast<size_t>(
      cuda::DecodeWorkspaceBytes(plan_.num_partials, kNumKvHeads, plan_.rows_per_block))));
  cuda::DecodeLaunch launch;
  launch.pool = pool;
  launch.score = score_;
  launch.q = q.data();
  launch.num_q_heads = kNumQHeads;
  launch.rows_per_block = plan_.rows_per_block;
  launch.entries = entries.as<cuda::EntryRecord>();
  launch.items = items.as<cuda::DecodeItem>();
  launch.num_items = static_cast<int32_t>(plan_.items.size());
  launch.combines = combines.as<cuda::CombineItem>();
  launch.num_combines = static_cast<int32_t>(plan_.combines.size());
  launch.workspace = workspace.data();
  launch.num_partials = plan_.num_partials;
  args_ = Require(cuda::MakeDecodeArgs(launch));
  for (cuda::DeviceBuffer* buffer : {&q, &out, &lse, &entries, &items, &combines, &workspace}) {
    buffers_.push_back(std::move(*buffer));
  }
  Require(ATTN_CUDA_STATUS(cudaDeviceSynchronize()));
}

double DecodeRun::PlanAndLaunchUs(const DeviceTimer& timer) const {
  std::vector<double> times;
  cuda::DecodePlan plan;
  for (int i = 0; i < 21; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    cuda::PlanDecode(args_.pool, score_, kNumQHeads, entries_, 132, &plan);
    Queue(timer.stream().get());
    const auto end = std::chrono::steady_clock::now();
    if (!plan.items.empty()) {
      times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    Require(timer.stream().Synchronize());
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

// Pools lie at the beginning of one arena, as a server's pool lies in one reservation.
void BenchOne(DeviceTimer& timer, const cuda::DeviceBuffer& arena, const DecodeShape& shape) {
  int32_t pages_per_set = 0;
  double bytes = 0;
  for (const int32_t length : shape.lengths) {
    pages_per_set += (length + shape.page_size - 1) / shape.page_size;
    bytes += double{1} * length * kNumKvHeads * 2 * cuda::kKvRowBytes;
  }
  const int sets = std::clamp(static_cast<int>(kRotatingBytes / bytes) + 1, 1, 16);
  cuda::KvPool pool{nullptr, pages_per_set * sets, 1, kNumKvHeads, shape.page_size};
  ATTN_CHECK(pool.num_pages * pool.page_bytes() <= static_cast<int64_t>(arena.bytes()), "arena");
  pool.base = arena.data();
  FillRandomBf16(pool.base, pool.num_pages * pool.page_bytes() / 2, 2, timer.stream().get());
  std::vector<int32_t> pages(pool.num_pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
  const cuda::DeviceBuffer table = OnDevice(pages);
  std::vector<DecodeRun> runs;
  runs.reserve(static_cast<size_t>(sets));
  std::vector<Call> calls;
  for (int i = 0; i < sets; ++i) {
    runs.emplace_back(shape, pool, table.as<int32_t>() + int64_t{i} * pages_per_set,
                      timer.stream().get());
  }
  for (int i = 0; i < std::max(sets, kRotatingCalls); ++i) {
    calls.push_back([&runs, i, sets](cudaStream_t stream) { runs[i % sets].Queue(stream); });
  }
  const std::string name =
      absl::StrCat("32/8 ", shape.name, " q", shape.q_len, " page ", shape.page_size);
  const double cold_us = timer.ColdUs(calls[0], kColdRepeats);
  Report("gpu_decode", name, "cold", cold_us, "us");
  Report("gpu_decode", name, "bandwidth", bytes / cold_us / 1e3, "GB/s");
  Report("gpu_decode", name, "rotating", timer.RotatingUs(calls), "us");
  Report("gpu_decode", name, "plan and launch", runs[0].PlanAndLaunchUs(timer), "us");
}

DecodeShape Equal(int sequences, int32_t length, int page_size, int q_len = 1) {
  return {std::vector<int32_t>(static_cast<size_t>(sequences), length), page_size, q_len,
          absl::StrCat("B", sequences, " L", length), std::nullopt};
}

}  // namespace

void BenchDecode(DeviceTimer& timer, bool is_quick) {
  const cuda::DeviceBuffer arena =
      Require(cuda::DeviceBuffer::Create(size_t{is_quick ? 5u : 17u} << 30));
  for (const int sequences : {1, 8, 32, 128}) {
    for (const int32_t length : {1024, 8192, 32768}) {
      if (is_quick && sequences * length > 32 * 8192) continue;
      BenchOne(timer, arena, Equal(sequences, length, 16));
    }
  }
  for (const int page_size : {64, 8, 1}) BenchOne(timer, arena, Equal(32, 8192, page_size));
  for (const int q_len : {2, 4}) BenchOne(timer, arena, Equal(32, 8192, 16, q_len));
  BenchOne(timer, arena, Equal(1024, 1024, 16));
  DecodeShape ragged{{}, 16, 1, "ragged 64 rows 256..32768", std::nullopt};
  for (int i = 0; i < 64; ++i) {
    ragged.lengths.push_back(static_cast<int32_t>(256 * std::pow(128.0, (i * 37 % 64) / 63.0)));
  }
  BenchOne(timer, arena, ragged);
  ragged.name += " extents of 1024";
  ragged.extent_log2 = 2;
  BenchOne(timer, arena, ragged);
}

}  // namespace attn::bench
