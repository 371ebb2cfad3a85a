// Takes settled calls from the engine, and has them encoded and written by whoever asked.
//
// Three kinds of threads do that, see docs/adr/0008:
//   * the engine's, if a step has settled one small call: nobody else would be quicker;
//   * gRPC's own, which look in after every reaction of a stream: a write started there costs
//     least, because nobody has to be woken for what follows;
//   * the completion thread, woken for what is left, so that answers never wait for a reaction.
// Answers of one connection leave one behind another, from one thread where that can be: two that
// write to one connection wait for each other, and a client woken for one answer finds the next.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/core/call.h"

namespace attn::server {

// Who waits for a call; Call::origin points to one (null: nobody).
class CallOrigin {
 public:
  virtual ~CallOrigin() = default;
  // Exactly once per accepted call. Must not block.
  virtual void Answer(std::unique_ptr<Call> call) = 0;
  // Equal for answers that leave through one connection; 0: not known.
  virtual uint64_t connection() const { return 0; }
};

class Completion : public CallSink {
 public:
  Completion();
  ~Completion() override;  // stops
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Engine thread.
  void Complete(std::unique_ptr<Call> call) override;
  void CompleteLast(std::unique_ptr<Call> call) override;
  // gRPC threads, at the end of a reaction: answers what waits, all of it.
  void Help();
  // Answers all that has been completed, then joins the thread. REQUIRES: nothing completes later.
  void Stop();

 private:
  // An answer with more bytes is not for the engine's thread.
  static constexpr size_t kSmallBytes = 64 << 10;
  // Answers of one connection that a thread takes at a time.
  static constexpr size_t kLongestRun = 8;
  using Calls = absl::InlinedVector<std::unique_ptr<Call>, kLongestRun>;

  void Run();
  // Hands the calls of the step over, or returns the one that is to be answered right here.
  std::unique_ptr<Call> Publish();
  Calls TakeRun();  // REQUIRES: mutex_
  void AnswerRun(std::unique_lock<std::mutex>& lock);

  // Engine thread: the calls of the step so far. Handed over together: call by call, the engine
  // would meet those who answer at the lock.
  std::vector<std::unique_ptr<Call>> step_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Call>> pending_;
  // Whether a look at pending_ is worth the lock. A helper that reads an old value is not missed:
  // who hands calls over sees to it that somebody comes.
  std::atomic<bool> any_pending_{false};
  int num_helping_ = 0;  // threads inside Help that will look at pending_ again
  bool sleeping_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace attn::server
