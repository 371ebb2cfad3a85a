// Open, Fork, Reorder, Truncate, Close, Describe, List, Renew, models, and the end of a stream.
//
// Calls that name existing sequences wait in line behind the earlier items of these (an Operation);
// the others act at once. Ids of new sequences are given out on arrival, so that items on the
// alias of a Fork that still waits can be put in line behind it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "attn/base/clock.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/answers.h"
#include "server/core/engine_observer.h"
#include "server/core/model_table.h"
#include "server/core/request_memory.h"
#include "server/core/sequence_order.h"
#include "server/core/sequence_traits.h"
#include "server/core/stats.h"
#include "server/core/stream_scope.h"

namespace attn::server {

// A lifecycle call in line.
struct Operation {
  Request request;  // of the first caller
  // Who gets the result: the first caller, then repeats of its request key. A caller that is late
  // leaves; the operation is dropped when nobody is left.
  std::vector<std::unique_ptr<Call>> callers;
  RequestMemory::Key key;
  uint64_t fingerprint = 0;  // if it has a request key
  SequenceOrder::Entry* place = nullptr;
  // What the request's references name, in its order; Reorder: targets, then sources.
  std::vector<absl::StatusOr<SequenceId>> sequences;
  std::vector<SequenceId>
      children;  // Fork: of all items, one behind another; 0 where there is none
  // Aliases that stand for children.
  struct BoundAlias {
    std::shared_ptr<StreamScope> stream;
    uint32_t alias = 0;
    SequenceId sequence;
  };
  std::vector<BoundAlias> bound;
  std::vector<SequenceId> in_use;
  bool renews = true;  // its owners' leases; looking on (Describe) does not
  std::list<Operation>::iterator self;
};

// Engine thread only.
class Lifecycle {
 public:
  struct Parts {
    const Clock* clock;
    kvcache::KvCache* cache;
    ModelTable* models;
    SequenceOrder* order;
    SequenceTraits* traits;
    Answers* answers;
    EngineStats* stats;
    EngineObserver* observer;
    uint32_t max_sequences;
  };
  explicit Lifecycle(const Parts& parts) : parts_(parts) {}

  // Any call but Attend: acts at once or puts it in line.
  void Add(std::unique_ptr<Call> call);
  // The call is not accepted: what it was to define is failed.
  void Refuse(std::unique_ptr<Call> call, absl::Status status);
  // Its turn has come.
  void Run(Operation& operation);
  void DropLate(Nanos now);
  void FailAll(const absl::Status& status);
  // Closes what nobody has renewed, forgets old request keys.
  void Expire(Nanos now);

  size_t num_waiting() const { return operations_.size(); }
  size_t num_remembered() const { return memory_.size(); }

 private:
  void Open(std::unique_ptr<Call> call);
  absl::StatusOr<SequenceId> OpenOne(const OpenCall& request, const OpenCall::Item& item,
                                     const std::shared_ptr<StreamScope>& stream, Nanos now);
  void Enqueue(std::unique_ptr<Call> call);
  void ResolveAll(Operation& operation, const Call& call);
  void Resolve(Operation& operation, const Call& call, SequenceRef ref, const char* field,
               size_t index);
  void NameChildren(Operation& operation, const Call& call);
  void Inherit(SequenceId parent, std::span<const SequenceId> children);

  // One per request: fills the result, or returns why the call failed as a whole.
  absl::Status Execute(Operation& operation, Result& result);
  absl::Status Fork(Operation& operation, ForkResult& result);
  absl::Status Reorder(Operation& operation);
  absl::Status Truncate(Operation& operation, TruncateResult& result);
  absl::Status Close(Operation& operation, CloseResult& result);
  absl::Status Describe(Operation& operation, DescribeResult& result);
  // The sequence, if it is open now.
  absl::StatusOr<SequenceId> OpenSequence(const Operation& operation, size_t index,
                                          const char* field) const;

  bool AnswerRepeat(std::unique_ptr<Call>& call);
  void AnswerAsFirst(std::unique_ptr<Call> call, const Result& first);
  void DropLateCallers(Operation& operation, Nanos now);
  void Abandon(Operation& operation);
  void FailChildren(Operation& operation, std::span<const SequenceId> children);
  void Finish(Operation& operation);
  void NoteClosing(StreamScope& stream, SequenceId sequence);
  void BindAlias(StreamScope* stream, uint32_t alias, SequenceId sequence);
  void BindChildren(const Call& call, std::span<const SequenceId> children,
                    std::vector<Operation::BoundAlias>* bound);
  void FailAliases(const Call& call);

  const Parts parts_;
  RequestMemory memory_;
  std::list<Operation> operations_;
  absl::flat_hash_map<RequestMemory::Key, Operation*> by_key_;  // those with a request key
};

}  // namespace attn::server
