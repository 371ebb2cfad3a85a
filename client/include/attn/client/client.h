// A connection to an attention server: models, sequences, single calls, streams.
//
//   auto client = attn::client::Client::Connect("127.0.0.1:50051");
//   if (!client.ok()) …
//   (*client)->DeclareModel(spec);
//
// client/examples/decode_loop.cc is a whole program. Blocking calls are retried as RetryPolicy
// says. Errors carry a Reason, see attn/base/error.h. Every method may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/client/attend.h"
#include "attn/client/model.h"
#include "attn/client/options.h"
#include "attn/client/sequence.h"
#include "attn/client/server_info.h"
#include "attn/client/stream.h"

namespace attn::client {

class Session;

// Renews the lease of one owner every sixth of it, until destroyed.
class LeaseKeeper {
 public:
  struct State;
  // Waits for a renewal in flight and its callback. Not to be called from that callback.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // OK, or how the last renewal failed; it is tried again at the next beat.
  absl::Status last_status() const;
  uint64_t num_renewals() const;

 private:
  friend class Client;
  explicit LeaseKeeper(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class Client {
 public:
  // `target` as gRPC writes it: host:port or unix:path. Reads the server's limits and epoch.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         ClientOptions options = {});
  // Streams and lease keepers may outlive the client.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // As of Connect or the last Refresh.
  ServerInfo info() const;
  // Reads the server's facts again. After a restart the epoch is another one: until then calls
  // with old sequences fail with STALE_SEQUENCE, from then on new ones can be opened.
  absl::StatusOr<ServerInfo> Refresh();

  // Idempotent for an equal spec; MODEL_EXISTS names the first field that differs.
  absl::StatusOr<ModelInfo> DeclareModel(const ModelSpec& spec);
  absl::StatusOr<ModelInfo> GetModel(const std::string& name);
  // All of them, in order of their names, however many calls that takes.
  absl::StatusOr<std::vector<ModelInfo>> ListModels();
  // MODEL_IN_USE while sequences of it are open.
  absl::Status RemoveModel(const std::string& name);

  absl::StatusOr<OpenResult> OpenSequences(const OpenRequest& request);
  // One sequence.
  absl::StatusOr<SequenceId> Open(const std::string& model, const std::string& owner,
                                  uint32_t lease_ms = 0);
  absl::StatusOr<ForkResult> Fork(const std::vector<ForkItem>& items);
  absl::Status Reorder(const ReorderRequest& request);
  absl::StatusOr<TruncateResult> Truncate(const std::vector<TruncateItem>& items);
  // One status per sequence. Closing what is already closed is no error.
  absl::StatusOr<std::vector<absl::Status>> Close(const std::vector<SequenceId>& sequences);
  absl::StatusOr<std::vector<absl::StatusOr<SequenceInfo>>> Describe(
      const std::vector<SequenceId>& sequences);
  absl::StatusOr<Renewal> RenewLease(const std::string& owner, uint32_t lease_ms);
  // `on_lost` (may be empty) hears of sequences the server has lost, on a library thread.
  std::unique_ptr<LeaseKeeper> KeepLease(
      const std::string& owner, uint32_t lease_ms,
      std::function<void(const std::vector<SequenceId>&)> on_lost = nullptr);

  // One layer step, unary: simple, and friendly to proxies. A request above the server's limits is
  // sent in parts.
  absl::StatusOr<AttendResult> Attend(const AttendRequest& request);
  std::unique_ptr<Stream> OpenStream(StreamOptions options = {});

 private:
  explicit Client(std::shared_ptr<Session> session);
  std::shared_ptr<Session> session_;
};

}  // namespace attn::client
