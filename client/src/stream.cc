#include "attn/client/stream.h"

#include <utility>

#include "attn/base/clock.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/attend_codec.h"
#include "client/src/attend_split.h"
#include "client/src/retry.h"
#include "client/src/stream_core.h"
#include "client/src/wire_sequence.h"

namespace attn::client {
namespace {

using Verdict = StreamCore::Verdict;

// An attend in one or several parts, and what has come of it so far.
struct AttendInProgress {
  std::vector<AttendPart> parts;  // without their spans, which end with the call
  size_t next = 0;
  AttendResult total;
  absl::Status failure;  // of the whole request

  Verdict Judge(v1::AttendStreamResponse& answer, absl::Status* why_retry) {
    const AttendPart& part = parts[next];
    absl::StatusOr<AttendResult> result =
        DecodeAttend(std::move(*answer.mutable_attend()), part.items.size());
    if (!result.ok()) {
      failure = result.status();
      return Verdict::kDone;
    }
    last = *std::move(result);
    *why_retry = PassingFailure(last);
    if (!why_retry->ok()) return Verdict::kRetry;
    return Settle() ? Verdict::kNextPart : Verdict::kDone;
  }

  // Takes in the last answer; whether another part follows.
  bool Settle() {
    const AttendPart& part = parts[next];
    if (part.is_piece && !last.FirstError().ok()) {
      failure = last.FirstError();
      return false;
    }
    MergePart(part, std::move(last), &total);
    last = AttendResult();
    return ++next < parts.size();
  }

  absl::StatusOr<AttendResult> Finish(const absl::Status& status) {
    ATTN_RETURN_IF_ERROR(status);
    if (!last.items.empty()) {
      // The attempts ran out on an answer whose items all failed.
      const absl::Status error = last.FirstError();
      if (Settle()) return error;  // parts behind it were not sent
    }
    ATTN_RETURN_IF_ERROR(failure);
    return std::move(total);
  }

 private:
  AttendResult last;  // the answer to parts[next], until it is settled
};

absl::StatusOr<std::vector<grpc::Slice>> EncodeParts(const AttendRequest& request,
                                                     const std::vector<AttendPart>& parts,
                                                     uint64_t epoch) {
  std::vector<grpc::Slice> slices;
  slices.reserve(parts.size());
  for (const AttendPart& part : parts) {
    ATTN_ASSIGN_OR_RETURN(grpc::Slice slice, EncodePart(request, part, epoch, Framing::kStream));
    slices.push_back(std::move(slice));
  }
  return slices;
}

// Sends a lifecycle message; `decode` makes the result of its answer.
template <typename Result>
std::future<Result> SendLifecycle(StreamCore& core, const v1::AttendStreamRequest& message,
                                  std::function<Result(v1::AttendStreamResponse&)> decode) {
  struct Exchange {
    std::promise<Result> promise;
    v1::AttendStreamResponse answer;
  };
  auto exchange = std::make_shared<Exchange>();
  std::future<Result> future = exchange->promise.get_future();
  StreamCore::Call call;
  call.parts.emplace_back(message.SerializeAsString());
  call.judge = [exchange](v1::AttendStreamResponse& answer, absl::Status*) {
    exchange->answer.Swap(&answer);
    return Verdict::kDone;
  };
  call.done = [exchange, decode = std::move(decode)](const absl::Status& status) {
    exchange->promise.set_value(status.ok() ? decode(exchange->answer) : Result(status));
  };
  core.Submit(std::move(call));
  return future;
}

}  // namespace

Stream::Stream(std::shared_ptr<StreamCore> core) : core_(std::move(core)) {}
Stream::~Stream() { core_->Shutdown(); }

Stream::RequestId Stream::Attend(const AttendRequest& request, AttendCallback done,
                                 CallOptions options) {
  auto progress = std::make_shared<AttendInProgress>();
  absl::StatusOr<std::vector<AttendPart>> parts =
      SplitRequest(request, core_->session().info().limits);
  absl::StatusOr<std::vector<grpc::Slice>> slices =
      parts.ok() ? EncodeParts(request, *parts, core_->session().epoch()) : parts.status();
  if (!slices.ok()) {
    done(slices.status());
    return 0;
  }
  for (AttendPart& part : *parts) part.q = part.k = part.v = {};
  progress->parts = *std::move(parts);
  StreamCore::Call call;
  call.parts = *std::move(slices);
  call.timeout = options.timeout_ms * kMillisecond;
  call.judge = [progress](v1::AttendStreamResponse& answer, absl::Status* failure) {
    return progress->Judge(answer, failure);
  };
  call.done = [progress, done = std::move(done)](const absl::Status& status) {
    done(progress->Finish(status));
  };
  return core_->Submit(std::move(call));
}

std::future<absl::StatusOr<AttendResult>> Stream::Attend(const AttendRequest& request,
                                                         CallOptions options) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<AttendResult>>>();
  auto future = promise->get_future();
  Attend(
      request,
      [promise](absl::StatusOr<AttendResult> result) { promise->set_value(std::move(result)); },
      options);
  return future;
}

std::future<absl::StatusOr<OpenResult>> Stream::Open(const OpenRequest& request) {
  v1::AttendStreamRequest message;
  *message.mutable_open() = ToWire(request);
  return SendLifecycle<absl::StatusOr<OpenResult>>(
      *core_, message, [count = request.num_sequences](v1::AttendStreamResponse& answer) {
        return FromWire(answer.open(), count);
      });
}

std::future<absl::StatusOr<ForkResult>> Stream::Fork(const std::vector<ForkItem>& items) {
  v1::AttendStreamRequest message;
  *message.mutable_fork() = ToWire(items, core_->session().epoch());
  return SendLifecycle<absl::StatusOr<ForkResult>>(
      *core_, message,
      [items](v1::AttendStreamResponse& answer) { return FromWire(answer.fork(), items); });
}

std::future<absl::Status> Stream::Reorder(const ReorderRequest& request) {
  v1::AttendStreamRequest message;
  *message.mutable_reorder() = ToWire(request, core_->session().epoch());
  return SendLifecycle<absl::Status>(*core_, message,
                                     [](v1::AttendStreamResponse&) { return absl::OkStatus(); });
}

std::future<absl::StatusOr<TruncateResult>> Stream::Truncate(
    const std::vector<TruncateItem>& items) {
  v1::AttendStreamRequest message;
  *message.mutable_truncate() = ToWire(items, core_->session().epoch());
  return SendLifecycle<absl::StatusOr<TruncateResult>>(
      *core_, message, [count = items.size()](v1::AttendStreamResponse& answer) {
        return FromWire(answer.truncate(), count);
      });
}

std::future<absl::StatusOr<std::vector<absl::Status>>> Stream::Close(
    const std::vector<SequenceId>& sequences) {
  v1::AttendStreamRequest message;
  *message.mutable_close() = CloseToWire(sequences, core_->session().epoch());
  return SendLifecycle<absl::StatusOr<std::vector<absl::Status>>>(
      *core_, message, [count = sequences.size()](v1::AttendStreamResponse& answer) {
        return FromWire(answer.close(), count);
      });
}

void Stream::Cancel(RequestId request) { core_->Cancel(request); }

StreamStats Stream::stats() const { return core_->stats(); }

}  // namespace attn::client
