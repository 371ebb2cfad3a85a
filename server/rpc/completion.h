// The completion thread: takes settled calls from the engine, and has them encoded and written by
// whoever asked, so that the engine never waits for gRPC.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/core/call.h"

namespace attn::server {

// Who waits for a call; Call::origin points to one (null: nobody).
class CallOrigin {
 public:
  virtual ~CallOrigin() = default;
  // Completion thread, exactly once per accepted call. Must not block.
  virtual void Answer(std::unique_ptr<Call> call) = 0;
};

class Completion : public CallSink {
 public:
  Completion();
  ~Completion() override;  // stops
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Engine thread. Wakes the completion thread only if it sleeps.
  void Complete(std::unique_ptr<Call> call) override;
  // Answers all that has been completed, then joins the thread. REQUIRES: nothing completes later.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Call>> pending_;
  bool sleeping_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace attn::server
