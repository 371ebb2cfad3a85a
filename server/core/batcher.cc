// Decode and bulk in turn, each by score, within the time of a step.
#include "server/core/batcher.h"

#include <algorithm>

#include "server/core/prefill_cut.h"

namespace attn::server {
namespace {

Nanos ScoreOf(const AttendWork& work, Nanos now) {
  return static_cast<Nanos>(work.priority) * Batcher::kAgeingStep + (now - work.ready_since);
}

// All of the item at once.
DueChunk WholeOf(AttendWork& work) {
  DueChunk chunk;
  chunk.work = &work;
  chunk.row_end = work.item->q_len;
  chunk.kv_head_end = work.store->spec.num_kv_heads;
  chunk.key_end = work.item->kv_new_len;
  return chunk;
}

}  // namespace

Batcher::Queue& Batcher::QueueOf(const AttendWork& work) {
  if (work.lane == Lane::kBulk) return bulk_;
  return decode_[static_cast<size_t>(work.priority) - static_cast<size_t>(Priority::kBatch)];
}

void Batcher::Add(AttendWork& work, Nanos now) {
  work.lane = LaneOf(*work.item);
  work.ready_since = now;
  work.key_units = costs_->AppendUnitsOf(work.store->spec, 1);
  work.units_left = work.lane == Lane::kDecode ? work.key_units * work.item->kv_new_len : 0;
  if (work.item->q_len > 0) {
    work.units_left += costs_->UnitsOf(work.store->spec, ShapeOf(work, WholeOf(work)));
  }
  Queue& queue = QueueOf(work);
  work.previous = queue.last;
  work.next = nullptr;
  (queue.last == nullptr ? queue.first : queue.last->next) = &work;
  queue.last = &work;
  work.queued = true;
  ++(work.lane == Lane::kBulk ? num_bulk_ : num_decode_);
}

void Batcher::Remove(AttendWork& work) {
  if (!work.queued) return;
  Queue& queue = QueueOf(work);
  (work.previous == nullptr ? queue.first : work.previous->next) = work.next;
  (work.next == nullptr ? queue.last : work.next->previous) = work.previous;
  work.queued = false;
  --(work.lane == Lane::kBulk ? num_bulk_ : num_decode_);
}

const std::vector<DueChunk>& Batcher::TakeDue(Nanos now) {
  due_.clear();
  if (num_decode_ > 0 && !(bulk_is_next_ && num_bulk_ > 0)) {
    decode_time_ = TakeDecode(now);
    bulk_is_next_ = true;
  } else {
    TakeBulk(now, options_.chunk_time - decode_time_);
    decode_time_ = 0;
    bulk_is_next_ = false;
  }
  return due_;
}

AttendWork* Batcher::NextDecode(Nanos now) const {
  AttendWork* best = nullptr;
  for (const Queue& queue : decode_) {
    if (queue.first == nullptr) continue;
    if (best == nullptr || ScoreOf(*queue.first, now) >= ScoreOf(*best, now)) best = queue.first;
  }
  return best;
}

// Returns the time that the taken work will need.
Nanos Batcher::TakeDecode(Nanos now) {
  const double limit = costs_->UnitsIn(UnitKind::kDecode, options_.chunk_time);
  double units = 0;
  while (num_decode_ > 0 && due_.size() < options_.max_launch_items) {
    AttendWork& work = *NextDecode(now);
    if (units > 0 && units + work.units_left > limit) break;
    Remove(work);
    DueChunk chunk = WholeOf(work);
    chunk.units = work.units_left;
    units += chunk.units;
    work.units_left = 0;
    work.next_key = work.item->kv_new_len;
    work.next_row = work.item->q_len;
    due_.push_back(chunk);
  }
  return costs_->NanosOf(UnitKind::kDecode, units);
}

AttendWork* Batcher::NextBulk(Nanos now) const {
  AttendWork* best = nullptr;
  Nanos best_score = 0;
  for (AttendWork* work = bulk_.first; work != nullptr; work = work->next) {
    const double keys_left = work->item->kv_new_len - work->next_key;
    const Nanos time_left = costs_->NanosOf(UnitKind::kPrefill, work->units_left) +
                            costs_->NanosOf(UnitKind::kAppend, keys_left * work->key_units);
    const Nanos score = ScoreOf(*work, now) - time_left;
    if (best != nullptr && score <= best_score) continue;
    best = work;
    best_score = score;
  }
  return best;
}

void Batcher::TakeBulk(Nanos now, Nanos time) {
  bool at_least_one = true;
  while (num_bulk_ > 0 && (at_least_one || due_.size() < options_.max_launch_items)) {
    AttendWork& work = *NextBulk(now);
    while (work.queued && TakeChunk(work, std::max<Nanos>(time, 0), at_least_one)) {
      time -= TimeOf(due_.back());
      at_least_one = false;
    }
    if (work.queued) return;  // the next chunk is too much for this step
  }
}

Nanos Batcher::TimeOf(const DueChunk& chunk) const {
  return costs_->NanosOf(UnitKind::kPrefill, chunk.units) +
         costs_->NanosOf(UnitKind::kAppend, chunk.append_units);
}

// Takes the next chunk of bulk work; false if it takes longer than `time`.
bool Batcher::TakeChunk(AttendWork& work, Nanos time, bool at_least_one) {
  const std::optional<DueChunk> chunk = NextPart(work, time, at_least_one);
  if (!chunk.has_value()) return false;
  work.next_key = chunk->key_end;
  if (chunk->has_rows()) {
    const bool rows_done = chunk->kv_head_end == work.store->spec.num_kv_heads;
    work.next_row = rows_done ? chunk->row_end : work.next_row;
    work.next_kv_head = rows_done ? 0 : chunk->kv_head_end;
    work.units_left -= chunk->units;
  }
  if (work.IsTaken()) Remove(work);
  due_.push_back(*chunk);
  return true;
}

// New keys first, as many as fit; behind the last of them rows for the rest of the time.
std::optional<DueChunk> Batcher::NextPart(AttendWork& work, Nanos time, bool at_least_one) const {
  DueChunk keys;
  keys.work = &work;
  keys.key_begin = work.next_key;
  keys.key_end = NextKeyEnd(work, *costs_, costs_->UnitsIn(UnitKind::kAppend, time), at_least_one);
  keys.append_units = work.key_units * (keys.key_end - keys.key_begin);
  const bool keys_done = keys.key_end == work.item->kv_new_len;
  if (!keys_done || work.next_row == work.item->q_len) {
    return keys.has_keys() ? std::optional(keys) : std::nullopt;
  }
  const Nanos time_left =
      std::max<Nanos>(time - costs_->NanosOf(UnitKind::kAppend, keys.append_units), 0);
  std::optional<DueChunk> chunk =
      NextChunk(work, *costs_, costs_->UnitsIn(UnitKind::kPrefill, time_left),
                at_least_one && !keys.has_keys());
  if (!chunk.has_value()) return keys.has_keys() ? std::optional(keys) : std::nullopt;
  chunk->key_begin = keys.key_begin;
  chunk->key_end = keys.key_end;
  chunk->append_units = keys.append_units;
  return chunk;
}

Nanos Batcher::OldestReady(Nanos now) const {
  Nanos oldest = now;
  for (const Queue& queue : decode_) {
    if (queue.first != nullptr) oldest = std::min(oldest, queue.first->ready_since);
  }
  return oldest;
}

}  // namespace attn::server
