// One layer step for many (sequence, layer) items: what goes in and what comes back.
//
// Tensors are dense, row major, little endian, without padding rows: the rows of one item stand
// behind those of the item before it. Spans are read during the call only; nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attn/base/dtype.h"
#include "attn/base/ids.h"
#include "attn/client/sequence.h"

namespace attn::client {

// Bits of AttendItem::flags; numbers equal attn.v1.ItemFlag.
enum ItemFlag : uint32_t {
  kNonCausal = 1,    // rows see every key
  kAppendAfter = 2,  // attend over the keys before the append, then append
  // Cut a longer layer to expected_len first. Never over an append whose call ended without an
  // answer (DEADLINE, a lost connection): that one may still run. Repeat it with its append_token.
  kRewind = 4,
  kNoSinkLogits = 8,  // for all but one part of a result that is merged by lse
};

// kv_new_len > 0, q_len > 0: append, then attend; q_len 0: append only; kv_new_len 0: read only.
struct AttendItem {
  SequenceId sequence = {};
  uint32_t layer = 0;
  uint32_t expected_len = 0;  // the layer's length before the append; ignored for read-only items
  uint32_t q_len = 0;
  uint32_t kv_new_len = 0;
  uint32_t flags = 0;  // ItemFlag bits
  // Names this append in repeats. 0: the library makes a random one, which its own retries keep.
  uint64_t append_token = 0;
  // Position of the first query row. Absent: the rows end where the keys end. All items of a
  // request that only read state it, or none does.
  std::optional<uint32_t> q_start = {};
};

struct AttendRequest {
  std::vector<AttendItem> items = {};
  DType dtype = DType::kFloat32;       // of q, k and v: the model's activation dtype
  absl::Span<const std::byte> q = {};  // [sum q_len, num_q_heads, head_dim_qk]
  absl::Span<const std::byte> k = {};  // [sum kv_new_len, num_kv_heads, head_dim_qk]
  absl::Span<const std::byte> v = {};  // [sum kv_new_len, num_kv_heads, head_dim_v]
  bool return_lse = false;
  std::optional<DType> out_dtype = {};  // absent: dtype
  Priority priority = Priority::kDefault;
};

// The bytes of a typed array, for the spans of an AttendRequest.
template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Times of the server for one request, in nanoseconds; of a request that was sent in parts, sums.
struct Timing {
  uint64_t queue_ns = 0;
  uint64_t input_ns = 0;
  uint64_t compute_ns = 0;  // shared by all requests of the launch
  uint64_t output_ns = 0;
  uint32_t launch_items = 0;   // items of all clients in that launch
  uint32_t launch_q_rows = 0;  // query rows of all clients in that launch
};

struct AttendOutcome {
  absl::Status status = {};  // with a Reason, see attn/base/error.h
  uint32_t new_len = 0;      // the layer's length now, also for failed items of known sequences
  bool replayed = false;     // the append had been done by an earlier attempt
};

struct AttendResult {
  std::vector<AttendOutcome> items = {};  // one per item
  DType out_dtype = DType::kFloat32;
  std::string out = {};         // bytes of [sum q_len, num_q_heads, head_dim_v]; NaN in failed rows
  std::vector<float> lse = {};  // [sum q_len, num_q_heads] if asked for; natural log
  Timing timing = {};

  // OK, or the first failed item's status.
  absl::Status FirstError() const {
    for (const AttendOutcome& item : items) {
      if (!item.status.ok()) return item.status;
    }
    return absl::OkStatus();
  }
};

}  // namespace attn::client
