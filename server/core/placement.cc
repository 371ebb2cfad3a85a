// The border between the policy and the cache.
#include "server/core/placement.h"

#include <utility>

#include "attn/base/status_macros.h"

namespace attn::server {

std::vector<Placed>& Placement::Place(const std::vector<DueChunk>& due, Nanos now) {
  placed_.clear();
  num_calls_ = 0;
  ++num_steps_;
  for (const DueChunk& chunk : due) {
    AttendWork& work = *chunk.work;
    if (work.settled) continue;
    // A further chunk of an item goes with the first, so that the item ends between steps only.
    const bool is_further = !placed_.empty() && placed_.back().chunk.work == &work;
    if (!is_further && work.call->IsLate(now)) {
      line_->Fail(work, LateError(*work.call->call, now));
      continue;
    }
    Placed placed;
    placed.chunk = chunk;
    if (chunk.appends) {
      if (absl::Status reserved = Reserve(placed); !reserved.ok()) {
        line_->Fail(work, std::move(reserved));
        continue;
      }
    }
    line_->PrepareOutputs(*work.call);
    if (work.call->last_step != num_steps_) ++num_calls_;
    work.call->last_step = num_steps_;
    placed_.push_back(std::move(placed));
  }
  return placed_;
}

absl::Status Placement::Reserve(Placed& placed) {
  AttendWork& work = *placed.chunk.work;
  const AttendItem& item = *work.item;
  ATTN_ASSIGN_OR_RETURN(placed.reservation,
                        cache_->Extend({.sequence = work.sequence,
                                        .layer = item.layer,
                                        .expected_len = item.expected_len,
                                        .count = item.kv_new_len,
                                        .append_token = item.append_token,
                                        .rewind = (item.flags & kItemRewind) != 0}));
  work.call->result->items[work.index].replayed = placed.reservation.replayed();
  for (const kvcache::PageMove& move : placed.reservation.moves()) {
    work.store->moves.push_back(move);
  }
  return absl::OkStatus();
}

}  // namespace attn::server
