// The border between the policy and the cache.
#include "server/core/placement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/wire_field.h"

namespace attn::server {
namespace {

// What the cache says of an append, as the fields of the request call it.
absl::Status InWireTerms(const absl::Status& status, size_t item) {
  const std::string field = FieldOf(status);
  absl::string_view array = "kv_new_lens";  // pages that are missing are missing for these
  if (field == "expected_len") array = "expected_lens";
  if (field == "append_token") array = "append_tokens";
  if (field == "layer") array = "layers";
  if (field == "sequence_id") array = "sequence_ids";
  return WithField(status, absl::StrCat(array, "[", item, "]"));
}

}  // namespace

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
    if (chunk.has_keys() && chunk.key_begin == 0) {
      if (absl::Status reserved = Reserve(work); !reserved.ok()) {
        line_->Fail(work, std::move(reserved));
        continue;
      }
    }
    if (!placed.writes()) placed.chunk.append_units = 0;
    line_->PrepareOutputs(*work.call);
    if (work.call->last_step != num_steps_) ++num_calls_;
    work.call->last_step = num_steps_;
    placed_.push_back(std::move(placed));
  }
  return placed_;
}

// Pages for all new keys of the item; a replay is past its keys at once.
absl::Status Placement::Reserve(AttendWork& work) {
  const AttendItem& item = *work.item;
  absl::StatusOr<kvcache::Reservation> reserved =
      cache_->Extend({.sequence = work.sequence,
                      .layer = item.layer,
                      .expected_len = item.expected_len,
                      .count = item.kv_new_len,
                      .append_token = item.append_token,
                      .rewind = (item.flags & kItemRewind) != 0});
  if (!reserved.ok()) return InWireTerms(reserved.status(), work.index);
  work.reservation = *std::move(reserved);
  if (work.reservation.replayed()) work.next_key = item.kv_new_len;
  work.call->result->items[work.index].replayed = work.reservation.replayed();
  for (const kvcache::PageMove& move : work.reservation.moves()) {
    work.store->moves.push_back(move);
  }
  return absl::OkStatus();
}

}  // namespace attn::server
