// Decode and bulk in turn, each by score, within the time of a step.
#include "server/core/batcher.h"

#include <algorithm>

#include "server/core/prefill_cut.h"

namespace attn::server {
namespace {

Lane LaneOf(const AttendItem& item) {
  const bool few = item.q_len <= kMaxDecodeRows && item.kv_new_len <= kMaxDecodeRows;
  return few ? Lane::kDecode : Lane::kBulk;
}

Nanos ScoreOf(const AttendWork& work, Nanos now) {
  return static_cast<Nanos>(work.priority) * Batcher::kAgeingStep + (now - work.ready_since);
}

// All of the item at once.
DueChunk WholeOf(AttendWork& work) {
  DueChunk chunk;
  chunk.work = &work;
  chunk.row_end = work.item->q_len;
  chunk.kv_head_end = work.store->spec.num_kv_heads;
  chunk.appends = !work.append_done;
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
  work.append_units = costs_->AppendUnitsOf(work.store->spec, work.item->kv_new_len);
  work.units_left = work.append_units;
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
  const double limit = costs_->UnitsIn(Lane::kDecode, options_.chunk_time);
  double units = 0;
  while (num_decode_ > 0 && due_.size() < options_.max_launch_items) {
    AttendWork& work = *NextDecode(now);
    if (units > 0 && units + work.units_left > limit) break;
    Remove(work);
    DueChunk chunk = WholeOf(work);
    chunk.units = work.units_left;
    units += chunk.units;
    work.units_left = 0;
    work.next_row = work.item->q_len;
    due_.push_back(chunk);
  }
  return costs_->NanosOf(Lane::kDecode, units);
}

AttendWork* Batcher::NextBulk(Nanos now) const {
  AttendWork* best = nullptr;
  Nanos best_score = 0;
  for (AttendWork* work = bulk_.first; work != nullptr; work = work->next) {
    const Nanos score = ScoreOf(*work, now) - costs_->NanosOf(Lane::kBulk, work->units_left);
    if (best != nullptr && score <= best_score) continue;
    best = work;
    best_score = score;
  }
  return best;
}

void Batcher::TakeBulk(Nanos now, Nanos time) {
  double units = costs_->UnitsIn(Lane::kBulk, std::max<Nanos>(time, 0));
  bool at_least_one = true;
  while (num_bulk_ > 0 && (at_least_one || due_.size() < options_.max_launch_items)) {
    AttendWork& work = *NextBulk(now);
    while (work.queued && TakeChunk(work, units, at_least_one)) {
      units -= due_.back().units;
      at_least_one = false;
    }
    if (work.queued) return;  // the next chunk is too much for this step
  }
}

// Takes the next chunk of bulk work; false if it costs more than `units`.
bool Batcher::TakeChunk(AttendWork& work, double units, bool at_least_one) {
  const bool appends = !work.append_done && work.next_row == 0 && work.next_kv_head == 0;
  const double append_units = appends ? work.append_units : 0;
  if (append_units > units && !at_least_one) return false;
  std::optional<DueChunk> chunk = WholeOf(work);
  if (work.item->q_len > 0) {
    chunk = NextChunk(work, *costs_, units - append_units, at_least_one);
    if (!chunk.has_value()) return false;
  }
  chunk->appends = appends;
  chunk->units += append_units;
  work.units_left -= chunk->units;
  const bool row_done = chunk->kv_head_end == work.store->spec.num_kv_heads;
  work.next_row = row_done ? chunk->row_end : work.next_row;
  work.next_kv_head = row_done ? 0 : chunk->kv_head_end;
  if (work.next_row == work.item->q_len) Remove(work);
  due_.push_back(*chunk);
  return true;
}

Nanos Batcher::OldestReady(Nanos now) const {
  Nanos oldest = now;
  for (const Queue& queue : decode_) {
    if (queue.first != nullptr) oldest = std::min(oldest, queue.first->ready_since);
  }
  return oldest;
}

}  // namespace attn::server
