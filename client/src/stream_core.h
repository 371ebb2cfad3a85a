// The state of a Stream: requests that wait, are in flight or back off, and the connection.
//
// One mutex guards everything; callbacks and protobuf parsing run outside it. A request leaves the
// table exactly once, by whoever removes it, who then runs its callback.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/base/clock.h"
#include "attn/client/stream.h"
#include "attn/v1/attention.pb.h"
#include "client/src/session.h"
#include "client/src/stream_connection.h"

namespace attn::client {

class StreamCore : public std::enable_shared_from_this<StreamCore>, public ConnectionOwner {
 public:
  // What becomes of an answer.
  enum class Verdict { kDone, kRetry, kNextPart };

  // A request as the core sees it.
  struct Call {
    // Each an AttendStreamRequest without request_id and timeout_us. One after the other, under
    // one id.
    std::vector<grpc::Slice> parts;
    // Looks at an answer without a failed status. kRetry: `failure` says why. May move out of it.
    std::function<Verdict(v1::AttendStreamResponse& answer, absl::Status* failure)> judge;
    // Runs once: OK after judge said kDone (or said kRetry and the attempts were used up), or why
    // the request failed as a whole.
    std::function<void(const absl::Status&)> done;
    Nanos timeout = 0;  // 0: none
  };

  StreamCore(std::shared_ptr<Session> session, StreamOptions options);

  uint64_t Submit(Call call);
  void Cancel(uint64_t id);
  // Cancels everything and waits until all callbacks have returned and the connection is gone.
  void Shutdown();
  StreamStats stats() const;
  Session& session() { return *session_; }

  // ConnectionOwner: called by the connection, without the lock.
  void OnAnswer(grpc::ByteBuffer* message) override;
  void OnWritten() override;
  void OnEnded(const absl::Status& status) override;
  void OnReleased() override;

 private:
  enum class State { kWaiting, kInFlight, kBackingOff, kJudged };
  struct Pending {
    Call call;
    State state = State::kWaiting;
    size_t part = 0;
    uint32_t attempts = 0;  // of this part
    bool cancelled = false;
    Nanos deadline = kNever;
  };
  using PendingPtr = std::shared_ptr<Pending>;
  // Callbacks to run once the lock is released.
  using Finished = std::vector<std::pair<PendingPtr, absl::Status>>;

  void PumpLocked(Finished* finished);
  bool MaySendLocked(const Pending& pending) const;
  void ConnectLocked();
  void SendLocked(uint64_t id, Pending& pending);
  // In flight no more.
  void LandLocked(const Pending& pending);
  void RemoveLocked(uint64_t id, const absl::Status& status, Finished* finished);
  void SendCancelLocked(uint64_t id);
  void JudgeAnswer(uint64_t id, const PendingPtr& pending, v1::AttendStreamResponse& answer);
  // After a failure that passes: waits and sends again, or gives up. `is_result`: the answer with
  // the failed items is there, so giving up is no failure of the request.
  void RetryLocked(uint64_t id, Pending& pending, const absl::Status& failure, bool is_result,
                   Finished* finished);
  void Resume(uint64_t id);
  void Expire(uint64_t id);
  void Reconnect();
  void FailAllLocked(const absl::Status& status, Finished* finished);
  void NoteFlowLocked(const v1::Flow& flow);
  // Runs the callbacks; the destructor's wait counts them.
  void Run(Finished finished);

  const std::shared_ptr<Session> session_;
  const StreamOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;            // a callback returned, or a connection was released
  std::map<uint64_t, PendingPtr> pending_;  // by id
  std::deque<uint64_t> waiting_;            // ids in the order of sending
  std::deque<grpc::ByteBuffer> control_;    // cancels to send; not counted as in flight
  std::shared_ptr<StreamConnection> connection_;
  int live_connections_ = 0;  // not released yet
  bool writing_ = false;
  bool backing_off_ = false;  // before the next connection
  bool shut_down_ = false;
  uint32_t failed_connections_ = 0;  // in a row, without any answer
  uint32_t in_flight_ = 0;
  uint64_t in_flight_bytes_ = 0;
  uint32_t requests_allowed_ = UINT32_MAX;
  uint64_t bytes_allowed_ = UINT64_MAX;
  bool draining_ = false;
  int running_ = 0;  // callbacks and judges that run now
  uint64_t next_id_ = 1;
  StreamStats stats_;
};

}  // namespace attn::client
