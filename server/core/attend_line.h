// Attend calls and their items from arrival to answer: put in line, made ready when their turn has
// come, settled item by item. Each item ends exactly once, in Done or in Fail; a call is answered
// when its last item has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/answers.h"
#include "server/core/attend_work.h"
#include "server/core/batcher.h"
#include "server/core/model_table.h"
#include "server/core/sequence_order.h"
#include "server/core/sequence_traits.h"
#include "server/core/stats.h"

namespace attn::server {

// DEADLINE or CANCELLED, whichever the call has met.
absl::Status LateError(const Call& call, Nanos now);

// Engine thread only.
class AttendLine {
 public:
  struct Parts {
    const Clock* clock;
    kvcache::KvCache* cache;
    ModelTable* models;
    SequenceOrder* order;
    SequenceTraits* traits;
    Batcher* batcher;
    Answers* answers;
    EngineStats* stats;
  };
  explicit AttendLine(const Parts& parts) : parts_(parts) {}

  // Resolves the items' sequences and puts them in line.
  void Add(std::unique_ptr<Call> call);
  // The item's turn has come: fixes its shape from the lengths as they are now, hands it to the
  // batcher.
  void Begin(AttendWork& work);
  // The item is computed, or will never be. Frees those behind it.
  void Done(AttendWork& work);
  void Fail(AttendWork& work, absl::Status status);

  // Ends every item of calls whose deadline has passed or that were cancelled.
  // REQUIRES: no launch is under way.
  void DropLate(Nanos now);
  void FailAll(const absl::Status& status);
  // From now on every item fails with this.
  void SetDeviceError(const absl::Status& status) { device_error_ = status; }

  // Finds room for out and lse: the caller's, or the result's own. No-op the second time.
  void PrepareOutputs(PendingCall& call);

  // Calls that are not answered yet.
  size_t num_calls() const { return calls_.size(); }
  // Frees the bookkeeping of answered calls, which lists of the step may still point to.
  void Reap() { answered_.clear(); }

 private:
  void Enter(AttendWork& work);
  absl::Status CheckOccursOnce(const AttendWork& work) const;
  absl::Status FixShape(AttendWork& work);
  void Hold(AttendWork& work);
  void Settle(AttendWork& work);
  void FailItems(PendingCall& call, const absl::Status& status);
  void AnswerIfDone(PendingCall& call);
  uint32_t LengthOf(const AttendWork& work) const;

  const Parts parts_;
  absl::Status device_error_;
  std::vector<std::unique_ptr<PendingCall>> calls_;
  std::vector<std::unique_ptr<PendingCall>> answered_;
};

}  // namespace attn::server
