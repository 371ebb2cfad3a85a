// What the engine notes about a call and its items while they are on their way. Plain data; the
// stages of the engine fill it from left to right.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attn/attention/batch.h"
#include "attn/base/clock.h"
#include "attn/kvcache/reservation.h"
#include "server/core/call.h"
#include "server/core/cost_model.h"
#include "server/core/model_table.h"
#include "server/core/sequence_order.h"

namespace attn::server {

struct PendingCall;

// One item of an Attend call.
struct AttendWork {
  // ---- known when the call is taken from the queue
  PendingCall* call = nullptr;
  const AttendItem* item = nullptr;
  uint32_t index = 0;  // in the call
  Priority priority = Priority::kNormal;
  bool settled = false;
  bool in_use = false;  // holds a use of its sequence
  SequenceId sequence;  // 0 if it could not be resolved
  SequenceOrder::Entry* place = nullptr;

  // ---- known when its turn in the sequence has come
  GroupStore* store = nullptr;
  uint32_t layer = 0;   // index in the group
  uint32_t kv_end = 0;  // its rows see keys below
  int64_t q_start = 0;
  Lane lane = Lane::kDecode;
  Nanos ready_since = 0;
  double key_units = 0;   // of one new key and value
  double units_left = 0;  // of the rows that no step has taken yet; decode: of all of it

  // ---- changes from step to step
  uint32_t next_key = 0;  // new keys below are written, or due in this step
  // From the first new key until the last is written. Engine steps lie between, so this holds the
  // pages; whatever ends the item before gives them back.
  kvcache::Reservation reservation;
  uint32_t next_row = 0;      // the rest begins here,
  uint32_t next_kv_head = 0;  // at this KV head
  // Neighbours in a queue of the batcher.
  AttendWork* previous = nullptr;
  AttendWork* next = nullptr;
  bool queued = false;

  // Steps have taken all of it.
  bool IsTaken() const { return next_key == item->kv_new_len && next_row == item->q_len; }
};

// Owns an Attend call from the queue to its sink.
struct PendingCall {
  std::unique_ptr<Call> call;
  AttendCall* request = nullptr;   // inside *call
  AttendResult* result = nullptr;  // inside *call
  std::vector<AttendWork> works;   // one per item, in place
  size_t num_unsettled = 0;
  size_t index = 0;          // in the list of pending calls
  char* out = nullptr;       // where rows go, once has_outputs: in the result, or the caller's
  float* lse = nullptr;      // null if nobody wants it
  bool has_outputs = false;  // out and lse are there
  bool has_started = false;  // an item of it has been in a launch
  uint64_t last_step = 0;    // the last step with an item of it
  uint64_t last_launch = 0;  // the last launch with an item of it,
  uint64_t last_timed = 0;   // and the last one whose time is in the result

  bool IsLate(Nanos now) const {
    return now >= call->deadline || call->cancelled->load(std::memory_order_relaxed);
  }
};

// What is due in this step of an item: new keys [key_begin, key_end) are written, then rows
// [row_begin, row_end) are computed at KV heads [kv_head_begin, kv_head_end). Either may be empty;
// rows come with the last of the keys or after it.
struct DueChunk {
  AttendWork* work = nullptr;
  uint32_t key_begin = 0;
  uint32_t key_end = 0;
  uint32_t row_begin = 0;
  uint32_t row_end = 0;
  uint32_t kv_head_begin = 0;
  uint32_t kv_head_end = 0;
  double units = 0;         // what the rows cost; decode: the keys, too
  double append_units = 0;  // what the keys of a bulk item cost

  bool has_keys() const { return key_end > key_begin; }
  bool has_rows() const { return row_end > row_begin; }
};

inline Lane LaneOf(const AttendItem& item) {
  const bool few = item.q_len <= kMaxDecodeRows && item.kv_new_len <= kMaxDecodeRows;
  return few ? Lane::kDecode : Lane::kBulk;
}

// The entry of these rows without its pointers, which is all that a cost depends on.
inline AttendEntry ShapeOf(const AttendWork& work, const DueChunk& chunk) {
  AttendEntry entry;
  entry.q_start = work.q_start + chunk.row_begin;
  entry.q_len = static_cast<int32_t>(chunk.row_end - chunk.row_begin);
  entry.kv_end = static_cast<int32_t>(work.kv_end);
  entry.layer = work.layer;
  entry.kv_head_begin = chunk.kv_head_begin;
  entry.kv_head_end = chunk.kv_head_end;
  entry.row_class = ClassOf(work.item->q_len);
  entry.causal = (work.item->flags & kItemNonCausal) == 0;
  entry.use_sinks = (work.item->flags & kItemNoSinkLogits) == 0;
  return entry;
}

}  // namespace attn::server
