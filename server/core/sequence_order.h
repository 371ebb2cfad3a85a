// Who must wait for whom: items of one (sequence, layer) run in arrival order, each settled before
// the next starts; a lifecycle call waits for all earlier items of its sequences and holds back
// later ones; all else is free at once. Pure bookkeeping, no clock, no cache.
//
// Every item and every lifecycle call has an Entry. An entry knows how many entries it waits for
// and who waits for it; a sequence with unfinished entries has a Line with the last of them, and
// a sequence without has nothing. So without conflicts an item costs two hash look-ups.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "attn/base/ids.h"

namespace attn::server {

struct AttendWork;
struct Operation;

// Engine thread only.
class SequenceOrder {
 public:
  class Entry {
   public:
    // One of the two while somebody wants the entry, none once it was abandoned.
    AttendWork* work() const { return work_; }
    Operation* operation() const { return operation_; }

   private:
    friend class SequenceOrder;
    AttendWork* work_ = nullptr;
    Operation* operation_ = nullptr;
    uint32_t waits_for_ = 0;
    uint32_t layer_ = 0;
    bool started_ = false;  // handed out by NextFree
    absl::InlinedVector<SequenceId, 1> sequences_;
    absl::InlinedVector<Entry*, 2> waiters_;
  };

  SequenceOrder() = default;
  SequenceOrder(const SequenceOrder&) = delete;
  SequenceOrder& operator=(const SequenceOrder&) = delete;

  // Entries belong to the order and live until Finish, or after Abandon as long as it wants.
  Entry* Add(SequenceId sequence, uint32_t layer, AttendWork* work);
  // `sequences` may repeat and may be empty.
  Entry* Add(std::span<const SequenceId> sequences, Operation* operation);

  // The next entry that may start, in the order in which they became free; null if none.
  Entry* NextFree();
  // The entry is settled: frees those behind it. REQUIRES: NextFree has returned it.
  void Finish(Entry* entry);
  // Its owner does not want it any more. It keeps its place, so that those behind it still wait
  // for those before it. Works for entries in any state.
  void Abandon(Entry* entry);

  // The lifecycle call that was to create this sequence failed. Remembered while the sequence has
  // unfinished entries, which are those that were put in line behind that call.
  void MarkFailed(SequenceId sequence);
  bool IsFailed(SequenceId sequence) const;

  // The item that was put in line last for this (sequence, layer), behind the last lifecycle call;
  // null if there is none, or nobody wants it any more.
  const AttendWork* LastWork(SequenceId sequence, uint32_t layer) const;
  // Unfinished entries of the sequence exist.
  bool HasLine(SequenceId sequence) const { return lines_.contains(sequence); }
  size_t num_lines() const { return lines_.size(); }

 private:
  struct Line {
    Entry* barrier = nullptr;  // the last lifecycle call
    // The last item of each layer that has come after the barrier.
    absl::InlinedVector<std::pair<uint32_t, Entry*>, 2> tails;
    bool failed = false;
  };

  Entry* NewEntry();
  void Recycle(Entry* entry);
  static void Wait(Entry* waiter, Entry* before);
  void Leave(Entry* entry, SequenceId sequence);

  absl::flat_hash_map<SequenceId, Line> lines_;
  std::vector<std::unique_ptr<Entry>> entries_;  // all ever made
  std::vector<Entry*> unused_;
  std::vector<Entry*> free_;  // may start; from next_free_ on
  size_t next_free_ = 0;
};

}  // namespace attn::server
