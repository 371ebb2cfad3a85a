#include "client/src/stream_core.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "client/src/attend_codec.h"
#include "client/src/retry.h"
#include "client/src/timer.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

// request_id and timeout_us in front of a part's bytes, which the message shares.
grpc::ByteBuffer Address(uint64_t id, Nanos remaining, const grpc::Slice& part) {
  v1::AttendStreamRequest head;
  head.set_request_id(id);
  if (remaining != kNever) {
    head.set_timeout_us(
        static_cast<uint32_t>(std::clamp<Nanos>(remaining / kMicrosecond, 1, UINT32_MAX)));
  }
  const grpc::Slice slices[] = {grpc::Slice(head.SerializeAsString()), part};
  return grpc::ByteBuffer(slices, 2);
}

absl::Status Cancelled() { return MakeError(Reason::kCancelled, "", "cancelled by the caller"); }

}  // namespace

StreamCore::StreamCore(std::shared_ptr<Session> session, StreamOptions options)
    : session_(std::move(session)), options_(options) {
  const uint32_t server_limit = session_->info().limits.max_in_flight_per_stream;
  requests_allowed_ = std::max(1u, options_.max_in_flight);
  if (server_limit != 0) requests_allowed_ = std::min(requests_allowed_, server_limit);
}

uint64_t StreamCore::Submit(Call call) {
  Finished finished;
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_id_++;
    auto pending = std::make_shared<Pending>();
    const Nanos timeout = call.timeout;
    pending->call = std::move(call);
    if (shut_down_) {
      finished.emplace_back(std::move(pending), Cancelled());
    } else {
      if (timeout > 0) {
        pending->deadline = Clock::Real().Now() + timeout;
        Timer::Shared().After(timeout + options_.timeout_grace_ms * kMillisecond,
                              [weak = weak_from_this(), id] {
                                if (const auto self = weak.lock()) self->Expire(id);
                              });
      }
      pending_.emplace(id, std::move(pending));
      waiting_.push_back(id);
      PumpLocked(&finished);
    }
  }
  Run(std::move(finished));
  return id;
}

void StreamCore::PumpLocked(Finished* finished) {
  if (shut_down_ || backing_off_) return;
  if (connection_ == nullptr) {
    if (waiting_.empty()) return;
    ConnectLocked();
  }
  if (draining_ && in_flight_ == 0) connection_->Cancel();  // OnEnded connects again
  while (!writing_ && !control_.empty()) {
    writing_ = connection_->Write(control_.front());
    control_.pop_front();
  }
  while (!writing_ && !draining_ && !waiting_.empty()) {
    const uint64_t id = waiting_.front();
    const auto found = pending_.find(id);
    if (found == pending_.end() || found->second->state != State::kWaiting) {
      waiting_.pop_front();
      continue;
    }
    Pending& pending = *found->second;
    if (pending.deadline <= Clock::Real().Now()) {
      waiting_.pop_front();
      RemoveLocked(id, MakeError(Reason::kDeadline, "", "the timeout passed before it was sent"),
                   finished);
      continue;
    }
    if (!MaySendLocked(pending)) return;
    waiting_.pop_front();
    SendLocked(id, pending);
  }
}

bool StreamCore::MaySendLocked(const Pending& pending) const {
  if (in_flight_ == 0) return true;
  return in_flight_ < requests_allowed_ &&
         in_flight_bytes_ + pending.call.parts[pending.part].size() <= bytes_allowed_;
}

void StreamCore::ConnectLocked() {
  draining_ = false;
  ++live_connections_;
  connection_ = StreamConnection::Start(session_->generic(), shared_from_this());
}

void StreamCore::SendLocked(uint64_t id, Pending& pending) {
  const Nanos remaining =
      pending.deadline == kNever ? kNever : pending.deadline - Clock::Real().Now();
  const grpc::Slice& part = pending.call.parts[pending.part];
  pending.state = State::kInFlight;
  ++pending.attempts;
  ++in_flight_;
  in_flight_bytes_ += part.size();
  ++stats_.requests;
  if (pending.attempts > 1) ++stats_.repeats;
  stats_.max_in_flight = std::max(stats_.max_in_flight, in_flight_);
  // On a stream that ends the write fails; OnEnded then sends it again.
  writing_ = connection_->Write(Address(id, remaining, part));
}

void StreamCore::LandLocked(const Pending& pending) {
  if (pending.state != State::kInFlight) return;
  --in_flight_;
  in_flight_bytes_ -= pending.call.parts[pending.part].size();
}

void StreamCore::RemoveLocked(uint64_t id, const absl::Status& status, Finished* finished) {
  const auto found = pending_.find(id);
  LandLocked(*found->second);
  finished->emplace_back(std::move(found->second), status);
  pending_.erase(found);
}

void StreamCore::OnWritten() {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (connection_ != nullptr) PumpLocked(&finished);
  }
  Run(std::move(finished));
}

void StreamCore::NoteFlowLocked(const v1::Flow& flow) {
  if (flow.requests_allowed() != 0) {
    requests_allowed_ = std::min(std::max(1u, options_.max_in_flight), flow.requests_allowed());
  }
  if (flow.bytes_allowed() != 0) bytes_allowed_ = flow.bytes_allowed();
  draining_ |= flow.draining();
}

void StreamCore::OnAnswer(grpc::ByteBuffer* message) {
  v1::AttendStreamResponse answer;
  const bool is_good = ParseMessage(message, &answer);
  Finished finished;
  PendingPtr pending;
  {
    const std::lock_guard lock(mutex_);
    if (!is_good) {
      FailAllLocked(MakeError(Reason::kInternal, "", "the server sent no AttendStreamResponse"),
                    &finished);
    }
    failed_connections_ = 0;
    if (answer.has_flow()) NoteFlowLocked(answer.flow());
    const auto found = pending_.find(answer.request_id());
    // Not there: advice, the answer to a cancel, or one that came too late.
    if (found != pending_.end() && found->second->state == State::kInFlight) {
      pending = found->second;
      LandLocked(*pending);
      pending->state = State::kJudged;
      ++running_;
    }
    PumpLocked(&finished);
  }
  Run(std::move(finished));
  if (pending != nullptr) JudgeAnswer(answer.request_id(), pending, answer);
}

void StreamCore::JudgeAnswer(uint64_t id, const PendingPtr& pending,
                             v1::AttendStreamResponse& answer) {
  absl::Status failure = FromWire(answer.status());
  const bool is_result = failure.ok();
  Verdict verdict = CanRetry(failure) ? Verdict::kRetry : Verdict::kDone;
  if (is_result) verdict = pending->call.judge(answer, &failure);
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    --running_;
    // Gone if the stream was shut down or the request expired meanwhile.
    if (pending_.contains(id)) {
      if (verdict == Verdict::kDone) {
        RemoveLocked(id, is_result ? absl::OkStatus() : failure, &finished);
      } else if (pending->cancelled) {
        RemoveLocked(id, Cancelled(), &finished);
      } else if (verdict == Verdict::kRetry) {
        RetryLocked(id, *pending, failure, is_result, &finished);
      } else {
        ++pending->part;
        pending->attempts = 0;
        pending->state = State::kWaiting;
        waiting_.push_front(id);
        PumpLocked(&finished);
      }
    }
    idle_.notify_all();
  }
  Run(std::move(finished));
}

void StreamCore::RetryLocked(uint64_t id, Pending& pending, const absl::Status& failure,
                             bool is_result, Finished* finished) {
  const Nanos wait = kMillisecond * BackoffMs(options_.retry, std::max(1u, pending.attempts),
                                              RetryAfterMsOf(failure), RandomKey());
  if (pending.attempts >= options_.retry.max_attempts ||
      (pending.deadline != kNever && Clock::Real().Now() + wait >= pending.deadline)) {
    RemoveLocked(id, is_result ? absl::OkStatus() : failure, finished);
    return;
  }
  pending.state = State::kBackingOff;
  Timer::Shared().After(wait, [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) self->Resume(id);
  });
}

void StreamCore::Resume(uint64_t id) {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end() || found->second->state != State::kBackingOff) return;
    found->second->state = State::kWaiting;
    waiting_.push_front(id);
    PumpLocked(&finished);
  }
  Run(std::move(finished));
}

void StreamCore::OnEnded(const absl::Status& status) {
  // A stream that the server ended in good order is as good as lost to what is unanswered.
  const absl::Status failure =
      status.ok() ? absl::UnavailableError("the server ended the stream") : status;
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    const bool was_draining = draining_;
    connection_ = nullptr;
    writing_ = false;
    draining_ = false;
    control_.clear();
    // In id order in front of what waits, so that pipelined appends keep their order.
    std::vector<uint64_t> unanswered;
    for (const auto& [id, pending] : pending_) {
      if (pending->state == State::kInFlight) unanswered.push_back(id);
    }
    const bool passes = was_draining || CanRetry(failure);
    if (passes) ++failed_connections_;
    for (auto id = unanswered.rbegin(); id != unanswered.rend(); ++id) {
      Pending& pending = *pending_[*id];
      if (!passes || pending.cancelled || pending.attempts >= options_.retry.max_attempts) {
        RemoveLocked(*id, pending.cancelled ? Cancelled() : failure, &finished);
        continue;
      }
      LandLocked(pending);
      pending.state = State::kWaiting;
      waiting_.push_front(*id);
    }
    if (failed_connections_ >= options_.retry.max_attempts) {
      FailAllLocked(failure, &finished);
      failed_connections_ = 0;
    }
    if (!shut_down_ && !waiting_.empty()) {
      backing_off_ = true;
      ++stats_.reconnects;
      const uint32_t wait = BackoffMs(options_.retry, std::max(1u, failed_connections_),
                                      RetryAfterMsOf(failure), RandomKey());
      Timer::Shared().After(wait * kMillisecond, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Reconnect();
      });
    }
    idle_.notify_all();
  }
  Run(std::move(finished));
}

void StreamCore::OnReleased() {
  const std::lock_guard lock(mutex_);
  --live_connections_;
  idle_.notify_all();
}

void StreamCore::Reconnect() {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    backing_off_ = false;
    PumpLocked(&finished);
  }
  Run(std::move(finished));
}

void StreamCore::Expire(uint64_t id) {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    // One that is being judged has its answer.
    if (found == pending_.end() || found->second->state == State::kJudged) return;
    if (found->second->state == State::kInFlight) SendCancelLocked(id);
    RemoveLocked(id, MakeError(Reason::kDeadline, "", "no answer within the timeout"), &finished);
    PumpLocked(&finished);
  }
  Run(std::move(finished));
}

void StreamCore::Cancel(uint64_t id) {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    found->second->cancelled = true;
    if (found->second->state == State::kInFlight) {
      SendCancelLocked(id);
    } else if (found->second->state != State::kJudged) {
      RemoveLocked(id, Cancelled(), &finished);
    }
    PumpLocked(&finished);
  }
  Run(std::move(finished));
}

void StreamCore::SendCancelLocked(uint64_t id) {
  v1::AttendStreamRequest message;
  message.set_request_id(next_id_++);
  message.mutable_cancel()->add_request_ids(id);
  const grpc::Slice slice(message.SerializeAsString());
  control_.emplace_back(&slice, 1);
}

void StreamCore::FailAllLocked(const absl::Status& status, Finished* finished) {
  while (!pending_.empty()) RemoveLocked(pending_.begin()->first, status, finished);
  waiting_.clear();
}

void StreamCore::Shutdown() {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
    FailAllLocked(Cancelled(), &finished);
    if (connection_ != nullptr) connection_->Cancel();
  }
  Run(std::move(finished));
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return live_connections_ == 0 && running_ == 0; });
}

StreamStats StreamCore::stats() const {
  const std::lock_guard lock(mutex_);
  StreamStats stats = stats_;
  stats.in_flight = in_flight_;
  stats.waiting = static_cast<uint32_t>(pending_.size()) - in_flight_;
  return stats;
}

void StreamCore::Run(Finished finished) {
  if (finished.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  for (auto& [pending, status] : finished) {
    pending->call.done(status);
    pending.reset();
  }
  const std::lock_guard lock(mutex_);
  --running_;
  idle_.notify_all();
}

}  // namespace attn::client
