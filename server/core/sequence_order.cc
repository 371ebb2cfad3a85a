// Arrival order as a graph of entries that count what they wait for.
#include "server/core/sequence_order.h"

#include <algorithm>

#include "attn/base/check.h"

namespace attn::server {

SequenceOrder::Entry* SequenceOrder::NewEntry() {
  if (unused_.empty()) {
    entries_.push_back(std::make_unique<Entry>());
    return entries_.back().get();
  }
  Entry* entry = unused_.back();
  unused_.pop_back();
  return entry;
}

void SequenceOrder::Recycle(Entry* entry) {
  entry->work_ = nullptr;
  entry->operation_ = nullptr;
  entry->waits_for_ = 0;
  entry->started_ = false;
  entry->sequences_.clear();
  entry->waiters_.clear();
  unused_.push_back(entry);
}

void SequenceOrder::Wait(Entry* waiter, Entry* before) {
  before->waiters_.push_back(waiter);
  ++waiter->waits_for_;
}

const AttendWork* SequenceOrder::LastWork(SequenceId sequence, uint32_t layer) const {
  const auto line = lines_.find(sequence);
  if (line == lines_.end()) return nullptr;
  for (const auto& [tail_layer, entry] : line->second.tails) {
    if (tail_layer == layer) return entry->work_;
  }
  return nullptr;
}

SequenceOrder::Entry* SequenceOrder::Add(SequenceId sequence, uint32_t layer, AttendWork* work) {
  Entry* entry = NewEntry();
  entry->work_ = work;
  entry->layer_ = layer;
  entry->sequences_.push_back(sequence);
  Line& line = lines_[sequence];
  const auto tail = std::find_if(line.tails.begin(), line.tails.end(),
                                 [layer](const auto& t) { return t.first == layer; });
  if (tail != line.tails.end()) {
    Wait(entry, tail->second);
    tail->second = entry;
  } else {
    if (line.barrier != nullptr) Wait(entry, line.barrier);
    line.tails.emplace_back(layer, entry);
  }
  if (entry->waits_for_ == 0) free_.push_back(entry);
  return entry;
}

SequenceOrder::Entry* SequenceOrder::Add(std::span<const SequenceId> sequences,
                                         Operation* operation) {
  Entry* entry = NewEntry();
  entry->operation_ = operation;
  for (const SequenceId sequence : sequences) {
    Line& line = lines_[sequence];
    if (line.barrier == entry) continue;
    entry->sequences_.push_back(sequence);
    // Every tail waits for the barrier already.
    for (const auto& [layer, tail] : line.tails) Wait(entry, tail);
    if (line.tails.empty() && line.barrier != nullptr) Wait(entry, line.barrier);
    line.tails.clear();
    line.barrier = entry;
  }
  if (entry->waits_for_ == 0) free_.push_back(entry);
  return entry;
}

SequenceOrder::Entry* SequenceOrder::NextFree() {
  while (next_free_ < free_.size()) {
    Entry* entry = free_[next_free_++];
    entry->started_ = true;
    if (entry->work_ != nullptr || entry->operation_ != nullptr) return entry;
    Finish(entry);
  }
  free_.clear();
  next_free_ = 0;
  return nullptr;
}

void SequenceOrder::Finish(Entry* entry) {
  ATTN_CHECK(entry->started_, "an entry was finished before its turn");
  for (const SequenceId sequence : entry->sequences_) Leave(entry, sequence);
  for (Entry* waiter : entry->waiters_) {
    if (--waiter->waits_for_ == 0) free_.push_back(waiter);
  }
  Recycle(entry);
}

void SequenceOrder::Leave(Entry* entry, SequenceId sequence) {
  const auto found = lines_.find(sequence);
  Line& line = found->second;
  if (line.barrier == entry) line.barrier = nullptr;
  for (auto& tail : line.tails) {
    if (tail.second != entry) continue;
    tail = line.tails.back();
    line.tails.pop_back();
    break;
  }
  // An unfinished entry is a tail, or the barrier, or before one of them.
  if (line.barrier == nullptr && line.tails.empty()) lines_.erase(found);
}

void SequenceOrder::Abandon(Entry* entry) {
  entry->work_ = nullptr;
  entry->operation_ = nullptr;
  if (entry->started_) Finish(entry);
}

void SequenceOrder::MarkFailed(SequenceId sequence) {
  if (const auto line = lines_.find(sequence); line != lines_.end()) line->second.failed = true;
}

bool SequenceOrder::IsFailed(SequenceId sequence) const {
  const auto line = lines_.find(sequence);
  return line != lines_.end() && line->second.failed;
}

}  // namespace attn::server
