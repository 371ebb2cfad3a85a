// One imitated inference engine: continuous batching over its active sequences, all layers of a
// step one after the other, as a model's layers depend on each other.
//
// A step is composed from what is active (step.h), walked through the layers with one request per
// layer, and settled: prompts that ended have their first token, decoding sequences one more. The
// next layer's tensors are made while the answer to this one is awaited. Sequences are opened when
// admitted and closed when their last token is out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attn/client/client.h"
#include "tools/loadgen/options.h"
#include "tools/loadgen/run_stats.h"
#include "tools/loadgen/send_ledger.h"
#include "tools/loadgen/step.h"
#include "tools/loadgen/verifier.h"

namespace attn::loadgen {

// What the engines of a run share. Pointers outlive the engines.
struct RunShared {
  const Options* options = nullptr;
  const ModelPlan* model = nullptr;
  const TensorSource* source = nullptr;
  Verifier* verifier = nullptr;
  BitFlipper* flipper = nullptr;  // null: nothing is corrupted
  SendLedger* ledger = nullptr;
  std::atomic<uint32_t> active{0};      // sequences of all engines now
  std::atomic<uint32_t> max_active{0};  // most at once
  std::atomic<uint64_t> finished{0};    // requests, for the progress bar
};

class EngineWalker {
 public:
  // `client` and `shared` outlive the walker.
  EngineWalker(client::Client* client, std::string owner, RunShared* shared);

  // From the arrival thread. `arrival` is the intended time on Clock::Real().
  void Submit(uint64_t number, const TraceRequest& request, Nanos arrival);
  // No more requests come.
  void Finish();

  // Works until everything submitted is done. On a thread of its own.
  void Run();

  // After Run.
  const RunStats& stats() const { return stats_; }
  const std::vector<SequenceId>& opened() const { return opened_; }

 private:
  struct Answer {
    Nanos arrived = 0;
    absl::StatusOr<client::AttendResult> result;
  };

  // Takes in arrivals, waiting for one if nothing is active. False: all done.
  bool Admit();
  void Open(std::vector<std::unique_ptr<ActiveSequence>> arrived);
  void WalkStep();
  std::future<Answer> Send(const client::AttendRequest& request);
  // Looks at the answer of a layer: failures, statistics, sampled rows.
  void Absorb(const std::vector<StepItem>& items, uint32_t layer, const Answer& answer);
  void KeepSamples(const StepItem& item, uint32_t layer, size_t first_row,
                   const client::AttendResult& result);
  void Settle(const std::vector<StepItem>& items, Nanos now);
  void Emit(ActiveSequence& sequence, Nanos now);
  void Fail(ActiveSequence& sequence, const absl::Status& why);
  // Closes what is done or failed.
  void Retire();

  client::Client* const client_;
  const std::string owner_;
  RunShared* const shared_;
  const std::unique_ptr<client::Stream> stream_;
  LayerRequest layer_request_;

  std::mutex mutex_;
  std::condition_variable arrived_changed_;
  std::deque<std::unique_ptr<ActiveSequence>> arrived_;  // guarded by mutex_
  bool no_more_ = false;                                 // guarded by mutex_

  std::vector<std::unique_ptr<ActiveSequence>> active_;
  std::vector<SequenceId> opened_;
  std::vector<std::future<absl::StatusOr<std::vector<absl::Status>>>> closes_;
  Nanos ready_ = 0;  // when the next send could have left at the earliest
  RunStats stats_;
};

}  // namespace attn::loadgen
