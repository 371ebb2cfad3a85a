#include "tools/bench/gpu/mixed_bench.h"

#include <cuda_runtime_api.h>

#include <numeric>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/launch.h"
#include "attention/cuda/decode/plan.h"
#include "attention/cuda/forward/launch.h"
#include "attention/cuda/forward/plan.h"
#include "attention/score/online_softmax.h"

namespace attn::bench {
namespace {

constexpr int kNumQHeads = 32;
constexpr int kNumKvHeads = 8;
constexpr int kPageSize = 16;
constexpr int kRowBytes = kNumQHeads * cuda::kKvRowBytes;
constexpr int kColdRepeats = 31;

// Two streams that leave one and come back to it, the first served before the second.
class Fork {
 public:
  Fork() {
    int least = 0;
    int greatest = 0;
    Require(ATTN_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    Require(
        ATTN_CUDA_STATUS(cudaStreamCreateWithPriority(&first_, cudaStreamNonBlocking, greatest)));
    Require(ATTN_CUDA_STATUS(cudaStreamCreateWithPriority(&second_, cudaStreamNonBlocking, least)));
    for (cudaEvent_t* event : {&begin_, &end_}) {
      Require(ATTN_CUDA_STATUS(cudaEventCreateWithFlags(event, cudaEventDisableTiming)));
    }
  }
  ~Fork() {
    for (cudaStream_t stream : {first_, second_}) (void)cudaStreamDestroy(stream);
    for (cudaEvent_t event : {begin_, end_}) (void)cudaEventDestroy(event);
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

  void Run(cudaStream_t stream, const Call& first, const Call& second) const {
    Require(ATTN_CUDA_STATUS(cudaEventRecord(begin_, stream)));
    for (cudaStream_t branch : {first_, second_}) {
      Require(ATTN_CUDA_STATUS(cudaStreamWaitEvent(branch, begin_)));
    }
    first(first_);
    second(second_);
    for (cudaStream_t branch : {first_, second_}) {
      Require(ATTN_CUDA_STATUS(cudaEventRecord(end_, branch)));
      Require(ATTN_CUDA_STATUS(cudaStreamWaitEvent(stream, end_)));
    }
  }

 private:
  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct MixedShape {
  int decodes;
  int32_t decode_len;
  int32_t chunk_rows;
  int32_t chunk_kv_len;

  std::string Name() const {
    return absl::StrCat(kNumQHeads, "/", kNumKvHeads, " page ", kPageSize, " ", decodes,
                        " decodes L", decode_len, " + chunk of ", chunk_rows, " rows at ",
                        chunk_kv_len);
  }
};

class MixedRun {
 public:
  MixedRun(const MixedShape& shape, cudaStream_t stream);

  void QueueDecode(cudaStream_t stream) const {
    Require(cuda::LaunchDecode(cuda::SelectDecode(kPageSize), decode_args_,
                               static_cast<int>(decode_plan_.items.size()),
                               static_cast<int>(decode_plan_.combines.size()), stream));
  }
  void QueueForward(int num_ctas, cudaStream_t stream) const {
    Require(cuda::LaunchForward(cuda::SelectForward(kPageSize), forward_args_, num_ctas, stream));
  }

 private:
  cuda::EntryRecord MakeEntry(int32_t q_len, int32_t kv_len);
  template <typename T>
  T* Keep(const std::vector<T>& values) {
    buffers_.push_back(OnDevice(values));
    return buffers_.back().template as<T>();
  }
  uint8_t* Keep(size_t bytes) {
    buffers_.push_back(Require(cuda::DeviceBuffer::Create(bytes)));
    return buffers_.back().data();
  }
  void PlanDecodes(const std::vector<cuda::EntryRecord>& entries, const uint8_t* q);
  void PlanChunk(const std::vector<cuda::EntryRecord>& entries, const uint8_t* q, int64_t rows);

  cuda::KvPool pool_;
  cuda::LaunchScore score_;
  const int32_t* table_ = nullptr;
  int32_t next_page_ = 0;
  std::vector<cuda::DeviceBuffer> buffers_;
  cuda::DecodePlan decode_plan_;
  cuda::DecodeArgs decode_args_;
  cuda::ForwardArgs forward_args_;
};

cuda::EntryRecord MixedRun::MakeEntry(int32_t q_len, int32_t kv_len) {
  cuda::EntryRecord entry;
  entry.page_table = table_ + next_page_;
  next_page_ += (kv_len + kPageSize - 1) / kPageSize;
  entry.out = Keep(static_cast<size_t>(q_len) * kRowBytes);
  entry.q_start = kv_len - q_len;
  entry.q_len = q_len;
  entry.kv_end = kv_len;
  entry.kv_head_end = kNumKvHeads;
  return entry;
}

MixedRun::MixedRun(const MixedShape& shape, cudaStream_t stream) {
  const int64_t tokens = int64_t{shape.decodes} * shape.decode_len + shape.chunk_kv_len;
  pool_ = {nullptr, static_cast<int32_t>(tokens / kPageSize), 1, kNumKvHeads, kPageSize};
  const int64_t pool_bytes = pool_.num_pages * pool_.page_bytes();
  pool_.base = Keep(static_cast<size_t>(pool_bytes));
  FillRandomBf16(pool_.base, pool_bytes / 2, 2, stream);
  std::vector<int32_t> pages(static_cast<size_t>(pool_.num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
  table_ = Keep(pages);
  score_.natural_scale = 0.08838834764831845f;
  score_.log2_scale = score_.natural_scale * score::kLog2E;

  const int64_t rows = shape.decodes + shape.chunk_rows;
  uint8_t* q = Keep(static_cast<size_t>(rows) * kRowBytes);
  FillRandomBf16(q, rows * kRowBytes / 2, 4, stream);
  std::vector<cuda::EntryRecord> decodes;
  for (int i = 0; i < shape.decodes; ++i) {
    decodes.push_back(MakeEntry(1, shape.decode_len));
    decodes.back().q_row = i;
  }
  PlanDecodes(decodes, q);
  PlanChunk({MakeEntry(shape.chunk_rows, shape.chunk_kv_len)},
            q + int64_t{shape.decodes} * kRowBytes, shape.chunk_rows);
  Require(ATTN_CUDA_STATUS(cudaDeviceSynchronize()));
}

void MixedRun::PlanDecodes(const std::vector<cuda::EntryRecord>& entries, const uint8_t* q) {
  decode_plan_ = cuda::PlanDecode(pool_, score_, kNumQHeads, entries, NumSms());
  cuda::DecodeLaunch launch;
  launch.pool = pool_;
  launch.score = score_;
  launch.q = q;
  launch.num_q_heads = kNumQHeads;
  launch.rows_per_block = decode_plan_.rows_per_block;
  launch.entries = Keep(entries);
  launch.items = Keep(decode_plan_.items);
  launch.num_items = static_cast<int32_t>(decode_plan_.items.size());
  launch.combines = Keep(decode_plan_.combines);
  launch.num_combines = static_cast<int32_t>(decode_plan_.combines.size());
  launch.num_partials = decode_plan_.num_partials;
  launch.workspace = Keep(static_cast<size_t>(cuda::DecodeWorkspaceBytes(
      decode_plan_.num_partials, kNumKvHeads, decode_plan_.rows_per_block)));
  decode_args_ = Require(cuda::MakeDecodeArgs(launch));
}

void MixedRun::PlanChunk(const std::vector<cuda::EntryRecord>& entries, const uint8_t* q,
                         int64_t rows) {
  const std::vector<cuda::ForwardItem> items =
      cuda::PlanForward(pool_, score_, kNumQHeads, entries);
  cuda::ForwardLaunch launch;
  launch.pool = pool_;
  launch.score = score_;
  launch.q = q;
  launch.total_q = rows;
  launch.num_q_heads = kNumQHeads;
  launch.entries = Keep(entries);
  launch.items = Keep(items);
  launch.num_items = static_cast<int32_t>(items.size());
  launch.next_item = Keep(std::vector<int32_t>{0});
  forward_args_ = Require(cuda::MakeForwardArgs(launch));
}

void BenchShape(DeviceTimer& timer, const MixedShape& shape) {
  const MixedRun run(shape, timer.stream().get());
  const Fork fork;
  const std::string name = shape.Name();
  const Call decode = [&run](cudaStream_t stream) { run.QueueDecode(stream); };
  const Call forward = [&run](cudaStream_t stream) { run.QueueForward(NumSms(), stream); };
  const double decode_us = timer.ColdUs(decode, kColdRepeats);
  const double forward_us = timer.ColdUs(forward, kColdRepeats);
  Report("gpu_mixed", name, "decodes alone", decode_us, "us");
  Report("gpu_mixed", name, "chunk alone", forward_us, "us");
  const auto report = [&](const std::string& how, const Call& call) {
    const double us = timer.ColdUs(call, kColdRepeats);
    Report("gpu_mixed", name, how.c_str(), us, "us");
    Report("gpu_mixed", name, (how + ", of the sum").c_str(), us / (decode_us + forward_us), "");
  };
  report("one stream", [&](cudaStream_t stream) {
    decode(stream);
    forward(stream);
  });
  for (const int ctas : {8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 124, 132}) {
    report(absl::StrCat("chunk on ", ctas, " SMs"), [&](cudaStream_t stream) {
      fork.Run(
          stream, [&](cudaStream_t branch) { run.QueueForward(ctas, branch); }, decode);
    });
  }
}

}  // namespace

void BenchMixed(DeviceTimer& timer) {
  BenchShape(timer, {32, 8192, 2048, 2048});
  BenchShape(timer, {32, 8192, 512, 8192});
  BenchShape(timer, {32, 8192, 2048, 16384});
  BenchShape(timer, {8, 2048, 2048, 2048});
  BenchShape(timer, {128, 8192, 2048, 2048});
}

}  // namespace attn::bench
