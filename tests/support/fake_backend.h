// A backend for tests of the engine: plain loops, no threads, exact enough to compare with (double
// sums, float results), memory poisoned with NaN wherever nothing was written, failures on demand,
// and launches that cost time on a FakeClock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attn/attention/backend.h"
#include "attn/base/clock.h"

namespace attn::test {

// One entry of a launch as the engine built it.
struct LaunchRecord {
  struct Row {
    uint32_t layer = 0;
    int64_t q_start = 0;
    int32_t q_len = 0;
    int32_t kv_end = 0;
    uint32_t kv_head_begin = 0;
    uint32_t kv_head_end = 0;
    RowClass row_class = RowClass::kDecode;
  };
  std::vector<Row> rows;
  std::vector<uint32_t> append_counts;
  size_t num_copies = 0;
};

// Shared by the backend, which the engine owns, and the test, which keeps a pointer.
struct FakeDevice {
  // The next launch, or the wait for it, ends with this; then it is OK again.
  absl::Status next_launch_error;
  absl::Status next_wait_error;
  // Called in Launch, before anything is done: the engine is in the middle of a step.
  std::function<void(const Batch&)> on_launch;
  // Moved on by what a launch costs, if set.
  FakeClock* clock = nullptr;
  double nanos_per_flop = 0;
  double nanos_per_byte = 0;
  // False: rows get zeros and appends are dropped, for lengths that would take too long.
  bool computes = true;
  int32_t cut_rows = 16;
  int64_t max_kv_len = int64_t{1} << 30;
  // Launch returns before anything is done; that is when Wait returns. Launches take turns.
  bool works_in_background = false;
  // One letter for every call: L for Launch, W for Wait.
  std::string calls;
  bool keeps_records = true;
  std::vector<LaunchRecord> records;
  int num_stores = 0;
  int64_t num_committed_pages = 0;
};

// Everything but a soft cap is supported. `device` is shared; one thread uses it at a time.
std::unique_ptr<Backend> CreateFakeBackend(std::shared_ptr<FakeDevice> device);

}  // namespace attn::test
