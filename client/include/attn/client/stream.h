// A stream to a server: many requests in flight, answered as they finish. The fast path.
//
//   auto stream = client->OpenStream();
//   auto answer = stream->Attend(request);            // std::future
//   const auto result = answer.get();                 // absl::StatusOr<AttendResult>
//
// A lost connection is made again and what is unanswered is sent again with the same append tokens
// and request keys (AttendOutcome::replayed tells). Pipelined appends to one (sequence, layer): if
// one fails, those behind it fail with LENGTH_MISMATCH.
//
// Every method may be called from any thread. Callbacks run on the library's threads, never under
// a lock; they must not block, and may call back into the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/client/attend.h"
#include "attn/client/options.h"
#include "attn/client/sequence.h"

namespace attn::client {

class StreamCore;

// What the stream has done so far.
struct StreamStats {
  uint64_t requests = 0;       // messages sent, repeats included
  uint64_t repeats = 0;        // of these, sent again
  uint64_t reconnects = 0;     // connections made after the first
  uint32_t in_flight = 0;      // now
  uint32_t waiting = 0;        // now, in the client
  uint32_t max_in_flight = 0;  // most at once
};

class Stream {
 public:
  using RequestId = uint64_t;
  using AttendCallback = std::function<void(absl::StatusOr<AttendResult>)>;

  // Cancels what is unanswered: every callback has run (with CANCELLED) when this returns. Not to
  // be called from a callback of this stream.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // One layer step. A request above the server's limits is sent in parts, one after the other, and
  // answered once. Errors of the whole request come as a status, others per item.
  RequestId Attend(const AttendRequest& request, AttendCallback done, CallOptions options = {});
  std::future<absl::StatusOr<AttendResult>> Attend(const AttendRequest& request,
                                                   CallOptions options = {});

  // As the calls of Client, in order with the stream's other requests.
  std::future<absl::StatusOr<OpenResult>> Open(const OpenRequest& request);
  std::future<absl::StatusOr<ForkResult>> Fork(const std::vector<ForkItem>& items);
  std::future<absl::Status> Reorder(const ReorderRequest& request);
  std::future<absl::StatusOr<TruncateResult>> Truncate(const std::vector<TruncateItem>& items);
  std::future<absl::StatusOr<std::vector<absl::Status>>> Close(
      const std::vector<SequenceId>& sequences);

  // Asks that a request be given up: what has not run ends CANCELLED, what has is answered as
  // usual. Unknown ids and answered requests are ignored.
  void Cancel(RequestId request);

  StreamStats stats() const;

 private:
  friend class Client;
  explicit Stream(std::shared_ptr<StreamCore> core);
  std::shared_ptr<StreamCore> core_;
};

}  // namespace attn::client
