// One launch on a device, made from a printable description: random inputs in pages of random
// order, NaN in every slot, output and workspace word that nothing should read or leave as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/cuda/device_buffer.h"
#include "attention/cuda/entry_record.h"
#include "attention/cuda/kv_pool.h"
#include "attention/cuda/stream.h"

namespace attn::cuda {

struct CaseEntry {
  int32_t q_len = 1;
  int32_t kv_len = 1;
  std::optional<int64_t> q_start;  // absent: kv_len - q_len
  int32_t skipped_q = 0;           // this many rows are made and left out before the first
  int32_t layer = 0;
  bool is_causal = true;
  bool uses_sinks = true;
  bool writes_fp32 = false;
  uint64_t seed = 0;  // of this entry's queries, keys and values; 0: the case's and its index

  int64_t start() const { return q_start.value_or(int64_t{kv_len} - q_len); }
};

struct DeviceCase {
  std::string name;
  int32_t num_q_heads = 4;
  int32_t num_kv_heads = 1;
  int32_t num_layers = 1;
  int32_t page_size = 16;
  float scale = 0.08838834764831845f;
  float soft_cap = 0.0f;
  std::optional<uint32_t> left;
  std::optional<uint32_t> right;
  uint32_t num_sinks = 0;
  float spread = 1.0f;  // standard deviation of queries
  std::vector<CaseEntry> entries;
  uint64_t seed = 1;

  int32_t group_size() const { return num_q_heads / num_kv_heads; }
};
std::ostream& operator<<(std::ostream& out, const DeviceCase& c);

// What an entry is computed from, as bf16 bits.
struct EntryInputs {
  std::vector<uint16_t> q;  // [q_len, num_q_heads, 128]
  std::vector<uint16_t> k;  // [kv_len, num_kv_heads, 128]
  std::vector<uint16_t> v;
};

struct EntryOutputs {
  std::vector<uint8_t> out;  // [q_len, num_q_heads, 128] of the entry's output type
  std::vector<float> lse;    // [q_len, num_q_heads]

  float At(bool is_fp32, size_t index) const;
  bool operator==(const EntryOutputs& other) const;  // of bits
};

// A case whose keys and values are in pages on the device, ready to be launched any number of
// times.
class CaseOnDevice {
 public:
  static absl::StatusOr<std::unique_ptr<CaseOnDevice>> Create(const DeviceCase& c);

  absl::StatusOr<std::vector<EntryOutputs>> RunForward();
  // Extents of 2^extent_log2 leaves; absent: as planned.
  absl::StatusOr<std::vector<EntryOutputs>> RunDecode(std::optional<int> extent_log2);

  const DeviceCase& description() const { return case_; }
  const std::vector<EntryInputs>& inputs() const { return inputs_; }
  const std::vector<float>& sinks() const {
    return sinks_;
  }  // [num_layers, num_q_heads, num_sinks]

 private:
  explicit CaseOnDevice(const DeviceCase& c, Stream stream)
      : case_(c), stream_(std::move(stream)) {}
  void MakeInputs();
  void ChoosePages();
  absl::Status Upload();
  absl::Status Append();
  absl::Status Poison();
  absl::StatusOr<std::vector<EntryOutputs>> Download();

  DeviceCase case_;
  Stream stream_;
  std::vector<EntryInputs> inputs_;
  std::vector<float> sinks_;
  KvPool pool_;
  LaunchScore score_;
  std::vector<std::vector<int32_t>> page_tables_;
  std::vector<EntryRecord> entries_;
  int64_t total_q_ = 0;  // rows of NaN between entries included
  std::vector<DeviceBuffer> buffers_;
  void* q_ = nullptr;
  EntryRecord* device_entries_ = nullptr;
};

// An entry that appends kv_len keys and attends with q_len rows.
CaseEntry Rows(int32_t q_len, int32_t kv_len, bool is_causal = true);
DeviceCase Case(std::string name, int q_heads, int kv_heads, int page_size,
                std::vector<CaseEntry> entries);

}  // namespace attn::cuda
