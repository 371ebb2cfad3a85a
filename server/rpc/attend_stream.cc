#include "server/rpc/attend_stream.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/rpc/status_codec.h"
#include "server/rpc/stream_codec.h"
#include "server/rpc/unary_reactor.h"
#include "server/rpc/unknown_fields.h"
#include "server/rpc/wire_bytes.h"

namespace attn::server {
namespace {

template <size_t size>
google::protobuf::ArenaOptions ArenaIn(std::array<char, size>* block) {
  google::protobuf::ArenaOptions options;
  options.initial_block = block->data();
  options.initial_block_size = block->size();
  return options;
}

constexpr char kRequest[] = "AttendStreamRequest";  // for logs

}  // namespace

// Keeps the stream alive while the engine has the call.
class AttendStream::Origin final : public CallOrigin {
 public:
  Origin(std::shared_ptr<AttendStream> stream, uint64_t id, size_t bytes)
      : stream_(std::move(stream)), request_id(id), slot{1, bytes} {}
  void Answer(std::unique_ptr<Call> call) override { stream_->Answer(*this, std::move(call)); }
  uint64_t connection() const override { return stream_->connection_; }

 private:
  const std::shared_ptr<AttendStream> stream_;

 public:
  const uint64_t request_id;
  const Slot slot;
  CancelFlag cancelled{false};
  std::vector<RefusedItem> refused;
  Nanos input = 0;  // time spent on decoding
};

AttendStream* AttendStream::Start(RpcContext* context, grpc::CallbackServerContext* rpc) {
  auto stream = std::make_shared<AttendStream>(context, rpc);
  context->streams.Add(stream);
  if (context->gate.closed()) stream->EndForDrain();  // the drain may have passed already
  stream->Pump();
  return stream.get();
}

AttendStream::AttendStream(RpcContext* context, grpc::CallbackServerContext* rpc)
    : context_(context),
      rpc_(rpc),
      connection_(absl::HashOf(rpc->peer())),
      arena_(ArenaIn(&arena_block_)) {}

// --------------------------------------------------------------------------------------- reading

void AttendStream::OnReadDone(bool ok) {
  if (ok) {
    {
      const std::lock_guard lock(mutex_);
      handling_ = true;
    }
    Handle(std::move(incoming_));
    incoming_.Clear();
  }
  {
    const std::lock_guard lock(mutex_);
    read_started_ = false;
    handling_ = false;
    reads_ended_ = reads_ended_ || !ok;
  }
  Completion* const completion = context_->completion;  // the stream may end in Pump
  Pump();
  completion->Help();
}

void AttendStream::Handle(grpc::ByteBuffer bytes) {
  const Nanos arrival = context_->clock->Now();
  const size_t num_bytes = bytes.Length();
  context_->border.received_bytes.Add(num_bytes);
  auto* request = google::protobuf::Arena::CreateMessage<v1::AttendStreamRequest>(&arena_);
  absl::Status parsed = ParseBytes(&bytes, context_->limits, request);
  if (!parsed.ok()) {
    context_->NoteRefused(kRequest, 0, parsed);
    const std::lock_guard lock(mutex_);
    protocol_error_ = std::move(parsed);
    reads_ended_ = true;
  } else {
    v1::AttendStreamResponse response;
    response.set_request_id(request->request_id());
    const absl::Status handled = request->has_cancel() ? CancelRequests(*request, &response)
                                                       : Admit(request, num_bytes, arrival);
    if (!handled.ok()) {
      context_->NoteRefused(kRequest, request->request_id(), handled);
      EncodeStatus(handled, response.mutable_status());
    }
    if (!handled.ok() || response.has_cancel()) Send(&response, 0, Slot{});
  }
  arena_.Reset();
}

// An error is the answer to the request; otherwise the answer is on its way.
absl::Status AttendStream::Admit(v1::AttendStreamRequest* request, size_t bytes, Nanos arrival) {
  auto origin = std::make_shared<Origin>(shared_from_this(), request->request_id(), bytes);
  {
    const std::lock_guard lock(mutex_);
    ATTN_RETURN_IF_ERROR(CheckRequestId(origin->request_id));
    if (!context_->gate.Enter()) return DrainingError();
    origin->cancelled.store(cancelled_, std::memory_order_relaxed);
    in_flight_.emplace(origin->request_id, origin);
    used_.requests += origin->slot.requests;
    used_.bytes += origin->slot.bytes;
  }
  absl::Status submitted = Submit(request, origin, arrival);
  if (!submitted.ok()) {
    context_->gate.Leave();
    const std::lock_guard lock(mutex_);
    in_flight_.erase(origin->request_id);
    Release(origin->slot);
  }
  return submitted;
}

absl::Status AttendStream::CheckRequestId(uint64_t id) const {
  if (id == 0) return MakeError(Reason::kInvalid, "request_id", "got 0, want another number");
  if (!in_flight_.contains(id)) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "request_id",
                   absl::StrCat("got ", id, ", which is in flight, want a new number"));
}

absl::Status AttendStream::Submit(v1::AttendStreamRequest* request,
                                  const std::shared_ptr<Origin>& origin, Nanos arrival) {
  ATTN_ASSIGN_OR_RETURN(Decoded decoded,
                        DecodeStreamRequest(request, context_->ForDecoding(&aliases_)));
  origin->refused = std::move(decoded.refused);
  origin->input = context_->clock->Now() - arrival;
  std::unique_ptr<Call> call =
      context_->MakeCall(std::move(decoded.request), std::shared_ptr<CallOrigin>(origin),
                         std::shared_ptr<CancelFlag>(origin, &origin->cancelled));
  call->stream = scope_;
  call->arrival = arrival;
  if (request->timeout_us() != 0) {
    call->deadline = arrival + request->timeout_us() * kMicrosecond;
  }
  absl::Status pushed = context_->engine->Submit(std::move(call));
  if (!pushed.ok()) {
    for (const AliasRange& range : decoded.aliases) aliases_.MarkFailed(range);
  }
  return pushed;
}

absl::Status AttendStream::CancelRequests(const v1::AttendStreamRequest& request,
                                          v1::AttendStreamResponse* response) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, ""));
  ATTN_RETURN_IF_ERROR(CheckKnown(request.cancel(), "cancel"));
  {
    const std::lock_guard lock(mutex_);
    ATTN_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
    for (const uint64_t id : request.cancel().request_ids()) {
      const auto it = in_flight_.find(id);
      if (it != in_flight_.end()) it->second->cancelled.store(true, std::memory_order_release);
    }
  }
  context_->engine->queue().Poke();
  response->mutable_cancel();
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------- writing

void AttendStream::Answer(const Origin& origin, std::unique_ptr<Call> call) {
  alignas(8) std::array<char, 1024> block;
  google::protobuf::Arena arena(ArenaIn(&block));
  auto& response = *google::protobuf::Arena::CreateMessage<v1::AttendStreamResponse>(&arena);
  response.set_request_id(origin.request_id);
  if (call->status.ok()) {
    const Nanos begin = context_->clock->Now();
    if (auto* attend = std::get_if<AttendResult>(&call->result)) {
      attend->timing.input = origin.input;
    }
    context_->NoteRefusedItems(origin.refused);
    EncodeStreamResult(origin.refused, context_->server_epoch, call.get(), &response);
    if (response.has_attend()) {
      response.mutable_attend()->mutable_timing()->set_output_ns(
          static_cast<uint64_t>(context_->clock->Now() - begin));
    }
  } else {
    context_->events->CallRefused(kRequest, origin.request_id, call->status);
    EncodeStatus(call->status, response.mutable_status());
  }
  call.reset();
  context_->gate.Leave();
  Send(&response, origin.request_id, origin.slot);
}

void AttendStream::Send(v1::AttendStreamResponse* response, uint64_t settled_id, Slot slot) {
  if (response->request_id() != 0 && flow_due_.exchange(false)) AddFlow(response);
  Outgoing outgoing{SerializeBytes(*response), slot};
  context_->border.sent_bytes.Add(outgoing.bytes.Length());
  {
    const std::lock_guard lock(mutex_);
    if (settled_id != 0) in_flight_.erase(settled_id);
    if (cancelled_) {
      Release(slot);  // nobody reads any more
    } else {
      outgoing_.push_back(std::move(outgoing));
    }
  }
  Pump();
}

void AttendStream::AddFlow(v1::AttendStreamResponse* response) {
  v1::Flow* flow = response->mutable_flow();
  const bool draining = context_->gate.closed();
  flow->set_requests_allowed(draining ? 0 : context_->limits.max_in_flight_per_stream);
  flow->set_bytes_allowed(draining ? 0 : context_->max_stream_bytes);
  flow->set_draining(draining);
}

void AttendStream::OnWriteDone(bool ok) {
  writing_.bytes.Clear();
  {
    const std::lock_guard lock(mutex_);
    write_started_ = false;
    ++num_writes_ended_;
    Release(writing_.slot);
    if (!ok) {
      for (const Outgoing& dropped : outgoing_) Release(dropped.slot);
      outgoing_.clear();
    }
  }
  Completion* const completion = context_->completion;
  Pump();
  completion->Help();
}

// ------------------------------------------------------------------------------ what happens next

void AttendStream::Release(Slot slot) {
  used_.requests -= slot.requests;
  used_.bytes -= slot.bytes;
}

bool AttendStream::CanRead() const {
  if (read_started_ || reads_ended_ || cancelled_ || draining_) return false;
  return used_.requests < context_->limits.max_in_flight_per_stream &&
         (used_.requests == 0 || used_.bytes < context_->max_stream_bytes) &&
         outgoing_.size() <= context_->limits.max_in_flight_per_stream;
}

bool AttendStream::CanFinish() const {
  if (!reads_ended_ && !cancelled_ && !draining_) return false;
  // A read that is out when a drain or a cancellation ends the stream will just fail.
  return in_flight_.empty() && outgoing_.empty() && !write_started_ && starting_ == 0 && !handling_;
}

AttendStream::Action AttendStream::NextAction() {
  if (finished_) return Action::kNone;
  if (!write_started_ && !outgoing_.empty()) {
    write_started_ = true;
    writing_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    ++starting_;
    return Action::kWrite;
  }
  if (CanRead()) {
    read_started_ = true;
    ++starting_;
    return Action::kRead;
  }
  if (!CanFinish()) return Action::kNone;
  finished_ = true;
  return Action::kFinish;
}

void AttendStream::Pump() {
  // The stream stays alive while this thread decides, even if another one finishes it meanwhile.
  const std::shared_ptr<AttendStream> self = shared_from_this();
  for (bool started = false;; started = true) {
    Action action = Action::kNone;
    grpc::WriteOptions options;
    {
      const std::lock_guard lock(mutex_);
      if (started) --starting_;
      action = NextAction();
      // With another answer right behind, this one need not be flushed on its own.
      if (action == Action::kWrite && !outgoing_.empty()) options.set_buffer_hint();
    }
    switch (action) {
      case Action::kNone:
        return;
      case Action::kRead:
        StartRead(&incoming_);
        break;
      case Action::kWrite:
        StartWrite(&writing_.bytes, options);
        break;
      case Action::kFinish:
        return FinishNow();
    }
  }
}

void AttendStream::FinishNow() {
  std::unique_ptr<Call> ended = context_->MakeCall(StreamEndedCall{}, nullptr);
  ended->stream = scope_;
  ended->arrival = context_->clock->Now();
  // Refused only by an engine that has stopped: then there is nothing left to close.
  context_->engine->queue().Push(std::move(ended)).IgnoreError();
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    if (protocol_error_.has_value()) {
      status = *protocol_error_;
    } else if (draining_ && !reads_ended_) {
      status = DrainingError();
    }
  }
  Finish(ToGrpcStatus(status));
}

// ------------------------------------------------------------------------------------ the end of
// it

void AttendStream::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const auto& [id, origin] : in_flight_) {
      origin->cancelled.store(true, std::memory_order_release);
    }
    for (const Outgoing& dropped : outgoing_) Release(dropped.slot);
    outgoing_.clear();
  }
  context_->engine->queue().Poke();
  Pump();
}

void AttendStream::OnDone() { context_->streams.Remove(this); }

void AttendStream::AnnounceDrain() {
  flow_due_ = false;
  v1::AttendStreamResponse response;
  AddFlow(&response);
  Send(&response, 0, Slot{});
}

void AttendStream::EndForDrain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    num_writes_seen_ = num_writes_ended_;
  }
  Pump();
}

void AttendStream::CancelIfUnread() {
  {
    const std::lock_guard lock(mutex_);
    const bool took_one = std::exchange(num_writes_seen_, num_writes_ended_) != num_writes_ended_;
    if (took_one || finished_ || !write_started_) return;
    ++starting_;  // the stream cannot finish, so its context stays
  }
  rpc_->TryCancel();
  {
    const std::lock_guard lock(mutex_);
    --starting_;
  }
  Pump();
}

}  // namespace attn::server
