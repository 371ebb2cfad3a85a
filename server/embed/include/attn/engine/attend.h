// One layer step for many (sequence, layer) items: what goes in and what comes back.
//
// Tensors are dense and row-major, without padding rows: the rows of one item stand behind those of
// the item before it. They stay in the caller's memory, nothing is copied: q, k, v, out and lse
// must live, and q, k, v keep their values, until the answer is there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attn/base/clock.h"
#include "attn/base/dtype.h"
#include "attn/base/ids.h"
#include "attn/engine/sequence.h"

namespace attn::engine {

// Bits of AttendItem::flags; numbers equal attn.v1.ItemFlag.
enum ItemFlag : uint32_t {
  kNonCausal = 1,    // rows see every key
  kAppendAfter = 2,  // attend over the keys before the append, then append
  kRewind = 4,       // cut a longer layer to expected_len first
  kNoSinkLogits = 8,
};

// kv_new_len > 0, q_len > 0: append, then attend; q_len 0: append only; kv_new_len 0: read only.
struct AttendItem {
  SequenceId sequence = {};
  uint32_t layer = 0;
  uint32_t expected_len = 0;  // the layer's length before the append; ignored for read-only items
  uint32_t q_len = 0;
  uint32_t kv_new_len = 0;
  uint32_t flags = 0;  // ItemFlag bits
  // Names this append in repeats: a call that ended DEADLINE or CANCELLED may have appended, and
  // the same token then computes the rows without appending again. 0: it will not be repeated.
  uint64_t append_token = 0;
  // Position of the first query row. Absent: the rows end where the keys end.
  std::optional<uint32_t> q_start = {};
};

struct AttendRequest {
  absl::Span<const AttendItem> items = {};  // read during the call only
  absl::Span<const std::byte> q = {};  // [sum q_len, num_q_heads, head_dim_qk], activation dtype
  absl::Span<const std::byte> k = {};  // [sum kv_new_len, num_kv_heads, head_dim_qk]
  absl::Span<const std::byte> v = {};  // [sum kv_new_len, num_kv_heads, head_dim_v]
  // [sum q_len, num_q_heads, head_dim_v] of out_dtype. Rows of failed items become NaN, unless the
  // call fails as a whole or no item names a declared model and one of its layers.
  absl::Span<std::byte> out = {};
  absl::Span<float> lse = {};           // [sum q_len, num_q_heads], natural log; empty: not wanted
  std::optional<DType> out_dtype = {};  // absent: the model's activation dtype
  Priority priority = Priority::kNormal;
  Nanos deadline = kNever;  // by Clock::Real(). Rows not computed by then fail with DEADLINE
  // Any thread may set it at any time; looked at before each launch and each chunk. May be null.
  std::shared_ptr<std::atomic<bool>> cancelled = {};
};

// The bytes of a typed array, for the spans of an AttendRequest.
template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
absl::Span<std::byte> WritableBytesOf(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

struct Timing {
  Nanos queue = 0;             // accepted until chosen for its first launch
  Nanos compute = 0;           // in launches, which may be shared with other calls
  uint32_t launch_items = 0;   // items of all calls in the last launch
  uint32_t launch_q_rows = 0;  // query rows of all calls in that launch
};

struct AttendOutcome {
  absl::Status status = {};  // with a Reason, see attn/base/error.h
  uint32_t new_len = 0;      // the layer's length now, also for failed items of known sequences
  bool replayed = false;     // the append had been done by an earlier call with this token
};

struct AttendResult {
  std::vector<AttendOutcome> items = {};  // one per item
  Timing timing = {};

  // OK, or the first failed item's status.
  absl::Status FirstError() const {
    for (const AttendOutcome& item : items) {
      if (!item.status.ok()) return item.status;
    }
    return absl::OkStatus();
  }
};

}  // namespace attn::engine
