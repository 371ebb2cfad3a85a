#include "tests/attention/cuda/device_case.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "attention/cuda/append/append_kv.h"
#include "attention/cuda/cuda_status.h"
#include "attention/cuda/decode/launch.h"
#include "attention/cuda/decode/plan.h"
#include "attention/cuda/forward/launch.h"
#include "attention/cuda/forward/plan.h"
#include "attention/score/online_softmax.h"
#include "attn/base/dtype.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

constexpr int kDim = kKvHeadDim;
constexpr int kUnusedPages = 3;
constexpr int kGapRows = 2;  // of NaN, behind the queries of each entry

// Bytes of NaN in bf16 and in fp32.
constexpr int kPoison = 0xff;

std::vector<uint16_t> RandomBf16(std::mt19937_64& random, size_t count, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = FloatToBf16(normal(random));
  return values;
}

absl::StatusOr<DeviceBuffer> Uploaded(const void* data, size_t bytes) {
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(std::max<size_t>(bytes, 16)));
  ATTN_RETURN_IF_ERROR(
      ATTN_CUDA_STATUS(cudaMemcpy(buffer.data(), data, bytes, cudaMemcpyHostToDevice)));
  return buffer;
}

template <typename T>
absl::StatusOr<DeviceBuffer> Uploaded(const std::vector<T>& values) {
  return Uploaded(values.data(), values.size() * sizeof(T));
}

absl::StatusOr<DeviceBuffer> Poisoned(size_t bytes) {
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(std::max<size_t>(bytes, 16)));
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemset(buffer.data(), kPoison, buffer.bytes())));
  return buffer;
}

LaunchScore ScoreOf(const DeviceCase& c) {
  LaunchScore score;
  const float magnitude = std::abs(c.scale);
  score.query_factor = c.scale == 0 ? 0.0f : (c.scale < 0 ? -1.0f : 1.0f);
  if (c.soft_cap > 0) {
    score.op.cap = c.soft_cap;
    score.op.input_scale = magnitude / c.soft_cap;
  } else {
    score.natural_scale = c.scale == 0 ? 1.0f : magnitude;
  }
  score.log2_scale = score.natural_scale * score::kLog2E;
  if (c.left.has_value()) score.range.left = *c.left;
  if (c.right.has_value()) score.range.right = *c.right;
  score.num_sinks = c.num_sinks;
  return score;
}

size_t OutBytes(const DeviceCase& c, const CaseEntry& entry) {
  return size_t{1} * entry.q_len * c.num_q_heads * kDim * (entry.writes_fp32 ? 4 : 2);
}

int NumSms() {
  int count = 0;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
  return count;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const DeviceCase& c) {
  out << c.name << ": heads " << c.num_q_heads << "/" << c.num_kv_heads << ", layers "
      << c.num_layers << ", page " << c.page_size << ", scale " << c.scale << ", cap " << c.soft_cap
      << ", sinks " << c.num_sinks << ", seed " << c.seed;
  if (c.left.has_value()) out << ", left " << *c.left;
  if (c.right.has_value()) out << ", right " << *c.right;
  for (const CaseEntry& e : c.entries) {
    out << " [q " << e.q_len << " at " << e.start() << ", kv " << e.kv_len << ", layer " << e.layer
        << (e.is_causal ? ", causal" : "") << (e.writes_fp32 ? ", fp32" : "") << "]";
  }
  return out;
}

float EntryOutputs::At(bool is_fp32, size_t index) const {
  return LoadAsFloat(is_fp32 ? DType::kFloat32 : DType::kBFloat16, out.data(),
                     static_cast<int64_t>(index));
}

bool EntryOutputs::operator==(const EntryOutputs& other) const {
  return out == other.out && lse.size() == other.lse.size() &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

CaseEntry Rows(int32_t q_len, int32_t kv_len, bool is_causal) {
  CaseEntry entry;
  entry.q_len = q_len;
  entry.kv_len = kv_len;
  entry.is_causal = is_causal;
  return entry;
}

DeviceCase Case(std::string name, int q_heads, int kv_heads, int page_size,
                std::vector<CaseEntry> entries) {
  DeviceCase c;
  c.name = std::move(name);
  c.num_q_heads = q_heads;
  c.num_kv_heads = kv_heads;
  c.page_size = page_size;
  c.entries = std::move(entries);
  return c;
}

absl::StatusOr<std::unique_ptr<CaseOnDevice>> CaseOnDevice::Create(const DeviceCase& c) {
  ATTN_ASSIGN_OR_RETURN(Stream stream, Stream::Create());
  auto made = std::unique_ptr<CaseOnDevice>(new CaseOnDevice(c, std::move(stream)));
  made->MakeInputs();
  made->ChoosePages();
  ATTN_RETURN_IF_ERROR(made->Upload());
  ATTN_RETURN_IF_ERROR(made->Append());
  return made;
}

void CaseOnDevice::MakeInputs() {
  for (size_t i = 0; i < case_.entries.size(); ++i) {
    const CaseEntry& entry = case_.entries[i];
    std::mt19937_64 random(entry.seed != 0 ? entry.seed : case_.seed * 1000 + i);
    const size_t q_row = size_t{1} * case_.num_q_heads * kDim;
    const size_t kv_count = size_t{1} * entry.kv_len * case_.num_kv_heads * kDim;
    EntryInputs inputs;
    inputs.k = RandomBf16(random, kv_count, 1.0f);
    inputs.v = RandomBf16(random, kv_count, 1.0f);
    inputs.q = RandomBf16(random, (entry.skipped_q + entry.q_len) * q_row, case_.spread);
    inputs.q.erase(inputs.q.begin(), inputs.q.begin() + entry.skipped_q * q_row);
    inputs_.push_back(std::move(inputs));
  }
  std::mt19937_64 random(case_.seed);
  std::normal_distribution<float> normal(1.0f, 2.0f);
  sinks_.resize(size_t{1} * case_.num_layers * case_.num_q_heads * case_.num_sinks);
  for (float& sink : sinks_) sink = normal(random);
}

void CaseOnDevice::ChoosePages() {
  int32_t num_pages = kUnusedPages;
  for (const CaseEntry& entry : case_.entries) {
    num_pages += (entry.kv_len + case_.page_size - 1) / case_.page_size;
  }
  std::vector<int32_t> order(num_pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(case_.seed));
  pool_ = {nullptr, num_pages, case_.num_layers, case_.num_kv_heads, case_.page_size};
  auto next = order.begin();
  for (const CaseEntry& entry : case_.entries) {
    const int32_t pages = (entry.kv_len + case_.page_size - 1) / case_.page_size;
    page_tables_.emplace_back(next, next + pages);
    next += pages;
  }
}

absl::Status CaseOnDevice::Upload() {
  score_ = ScoreOf(case_);
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer pages,
                        Poisoned(size_t{1} * pool_.num_pages * pool_.page_bytes()));
  pool_.base = pages.data();
  buffers_.push_back(std::move(pages));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer sinks, Uploaded(sinks_));
  if (case_.num_sinks > 0) score_.sinks = sinks.as<float>();
  buffers_.push_back(std::move(sinks));

  std::vector<uint16_t> q;
  const size_t row = size_t{1} * case_.num_q_heads * kDim;
  for (size_t i = 0; i < case_.entries.size(); ++i) {
    const CaseEntry& given = case_.entries[i];
    EntryRecord entry;
    entry.q_row = static_cast<int64_t>(q.size() / row);
    entry.q_start = given.start();
    entry.q_len = given.q_len;
    entry.kv_end = given.kv_len;
    entry.layer = given.layer;
    entry.kv_head_end = static_cast<int16_t>(case_.num_kv_heads);
    entry.is_causal = given.is_causal;
    entry.uses_sinks = given.uses_sinks;
    entry.writes_fp32 = given.writes_fp32;
    ATTN_ASSIGN_OR_RETURN(DeviceBuffer out, Poisoned(OutBytes(case_, given)));
    ATTN_ASSIGN_OR_RETURN(DeviceBuffer lse, Poisoned(size_t{4} * given.q_len * case_.num_q_heads));
    ATTN_ASSIGN_OR_RETURN(DeviceBuffer table, Uploaded(page_tables_[i]));
    entry.out = out.data();
    entry.lse = lse.as<float>();
    entry.page_table = table.as<int32_t>();
    entries_.push_back(entry);
    buffers_.push_back(std::move(out));
    buffers_.push_back(std::move(lse));
    buffers_.push_back(std::move(table));
    q.insert(q.end(), inputs_[i].q.begin(), inputs_[i].q.end());
    q.insert(q.end(), kGapRows * row, uint16_t{0xffff});
  }
  total_q_ = static_cast<int64_t>(q.size() / row);
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer queries, Uploaded(q));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer entries, Uploaded(entries_));
  q_ = queries.data();
  device_entries_ = entries.as<EntryRecord>();
  buffers_.push_back(std::move(queries));
  buffers_.push_back(std::move(entries));
  return absl::OkStatus();
}

absl::Status CaseOnDevice::Append() {
  std::vector<DeviceBuffer> sources;
  std::vector<AppendRecord> records;
  std::vector<AppendItem> items;
  for (size_t i = 0; i < entries_.size(); ++i) {
    ATTN_ASSIGN_OR_RETURN(DeviceBuffer k, Uploaded(inputs_[i].k));
    ATTN_ASSIGN_OR_RETURN(DeviceBuffer v, Uploaded(inputs_[i].v));
    records.push_back(
        {k.data(), v.data(), entries_[i].page_table, entries_[i].layer, 0, entries_[i].kv_end});
    for (int32_t first = 0; first < entries_[i].kv_end; first += kAppendSlots) {
      items.push_back({static_cast<int32_t>(i), first});
    }
    sources.push_back(std::move(k));
    sources.push_back(std::move(v));
  }
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer device_records, Uploaded(records));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer device_items, Uploaded(items));
  ATTN_RETURN_IF_ERROR(LaunchAppendKv(pool_, device_records.as<AppendRecord>(),
                                      device_items.as<AppendItem>(), static_cast<int>(items.size()),
                                      stream_.get()));
  return stream_.Synchronize();
}

absl::Status CaseOnDevice::Poison() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const CaseEntry& given = case_.entries[i];
    ATTN_RETURN_IF_ERROR(
        ATTN_CUDA_STATUS(cudaMemset(entries_[i].out, kPoison, OutBytes(case_, given))));
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(
        cudaMemset(entries_[i].lse, kPoison, size_t{4} * given.q_len * case_.num_q_heads)));
  }
  return ATTN_CUDA_STATUS(cudaDeviceSynchronize());
}

absl::StatusOr<std::vector<EntryOutputs>> CaseOnDevice::Download() {
  ATTN_RETURN_IF_ERROR(stream_.Synchronize());
  std::vector<EntryOutputs> outputs(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const CaseEntry& given = case_.entries[i];
    outputs[i].out.resize(OutBytes(case_, given));
    outputs[i].lse.resize(size_t{1} * given.q_len * case_.num_q_heads);
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemcpy(
        outputs[i].out.data(), entries_[i].out, outputs[i].out.size(), cudaMemcpyDeviceToHost)));
    ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaMemcpy(outputs[i].lse.data(), entries_[i].lse,
                                                     outputs[i].lse.size() * sizeof(float),
                                                     cudaMemcpyDeviceToHost)));
  }
  return outputs;
}

absl::StatusOr<std::vector<EntryOutputs>> CaseOnDevice::RunForward() {
  ATTN_RETURN_IF_ERROR(Poison());
  const std::vector<ForwardItem> items = PlanForward(pool_, score_, case_.num_q_heads, entries_);
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer device_items, Uploaded(items));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer counter, Uploaded(std::vector<int32_t>{0}));
  ForwardLaunch launch;
  launch.pool = pool_;
  launch.score = score_;
  launch.q = q_;
  launch.total_q = total_q_;
  launch.num_q_heads = case_.num_q_heads;
  launch.entries = device_entries_;
  launch.items = device_items.as<ForwardItem>();
  launch.num_items = static_cast<int32_t>(items.size());
  launch.next_item = counter.as<int32_t>();
  ATTN_ASSIGN_OR_RETURN(const ForwardArgs args, MakeForwardArgs(launch));
  ATTN_RETURN_IF_ERROR(
      LaunchForward(SelectForward(pool_.page_size), args, NumSms(), stream_.get()));
  ATTN_ASSIGN_OR_RETURN(std::vector<EntryOutputs> outputs, Download());
  int32_t left_over = -1;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(
      cudaMemcpy(&left_over, counter.data(), sizeof(left_over), cudaMemcpyDeviceToHost)));
  if (left_over != 0) {
    return MakeError(Reason::kInternal, "next_item", absl::StrCat("left at ", left_over));
  }
  return outputs;
}

absl::StatusOr<std::vector<EntryOutputs>> CaseOnDevice::RunDecode(std::optional<int> extent_log2) {
  ATTN_RETURN_IF_ERROR(Poison());
  const DecodePlan plan =
      extent_log2.has_value()
          ? PlanDecodeWithExtent(pool_, score_, case_.num_q_heads, entries_, *extent_log2)
          : PlanDecode(pool_, score_, case_.num_q_heads, entries_, NumSms());
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer items, Uploaded(plan.items));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer combines, Uploaded(plan.combines));
  ATTN_ASSIGN_OR_RETURN(DeviceBuffer workspace,
                        Poisoned(static_cast<size_t>(DecodeWorkspaceBytes(
                            plan.num_partials, pool_.num_kv_heads, plan.rows_per_block))));
  DecodeLaunch launch;
  launch.pool = pool_;
  launch.score = score_;
  launch.q = q_;
  launch.num_q_heads = case_.num_q_heads;
  launch.rows_per_block = plan.rows_per_block;
  launch.entries = device_entries_;
  launch.items = items.as<DecodeItem>();
  launch.num_items = static_cast<int32_t>(plan.items.size());
  launch.combines = combines.as<CombineItem>();
  launch.num_combines = static_cast<int32_t>(plan.combines.size());
  launch.workspace = workspace.data();
  launch.num_partials = plan.num_partials;
  ATTN_RETURN_IF_ERROR(ATTN_CUDA_STATUS(cudaDeviceSynchronize()));
  ATTN_ASSIGN_OR_RETURN(const DecodeArgs args, MakeDecodeArgs(launch));
  ATTN_RETURN_IF_ERROR(LaunchDecode(SelectDecode(pool_.page_size), args, launch.num_items,
                                    launch.num_combines, stream_.get()));
  return Download();
}

}  // namespace attn::cuda
