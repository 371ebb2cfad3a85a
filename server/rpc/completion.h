// Takes settled calls from the engine, and has them encoded and written by whoever asked.
//
// Three kinds of threads do that, see docs/adr/0008:
//   * the engine's, if a step has settled one small call: nobody else would be quicker;
//   * gRPC's own, which look in after every reaction of a stream: a write started there costs
//     least, because nobody has to be woken for what follows;
//   * the completion thread, woken for what is left, so that answers never wait for a reaction.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "server/core/call.h"

namespace attn::server {

// Who waits for a call; Call::origin points to one (null: nobody).
class CallOrigin {
 public:
  virtual ~CallOrigin() = default;
  // Exactly once per accepted call. Must not block.
  virtual void Answer(std::unique_ptr<Call> call) = 0;
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

  void Run();
  std::unique_ptr<Call> TakeFirst();  // REQUIRES: mutex_, something pending

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Call>> pending_;
  int num_helping_ = 0;  // threads inside Help that will look at pending_ again
  bool sleeping_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace attn::server
