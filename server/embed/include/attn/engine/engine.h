// The engine of attn-server inside another program: sequences in a paged KV cache, attention over
// them, batches of many callers; no gRPC, no protobuf.
//
//   auto engine = Engine::Create({.kv_bytes = int64_t{1} << 30}, CreateCpuBackend({}).value());
//   (*engine)->DeclareModel(spec);
//   SequenceId id = (*engine)->Open("my-model", "me").value();
//   const AttendItem item = {.sequence = id, .expected_len = 0, .q_len = 4, .kv_new_len = 4};
//   (*engine)->Attend({.items = {&item, 1}, .q = …, .k = …, .v = …, .out = …});
//
// server/embed/examples/embed_engine.cc is a whole program. What a call means is what it means on
// the wire (proto/attn/v1/attention.proto), and errors name fields as the wire does: layers[3] is
// the layer of item 3.
//
// By default the engine has no thread of its own. A blocking call steps it on the caller's thread
// until its answer is there; of several callers one steps for all, and their items join in
// launches. What Submit has accepted moves in blocking calls of any thread and in Poll. With
// kOwnThread a thread of the engine does all that, and callbacks run there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attn/attention/backend.h"
#include "attn/base/clock.h"
#include "attn/base/ids.h"
#include "attn/engine/attend.h"
#include "attn/engine/model.h"
#include "attn/engine/sequence.h"
#include "attn/kvcache/kv_cache.h"

namespace attn::engine {

enum class Drive : uint8_t { kCallers, kOwnThread };

struct EngineOptions {
  Drive drive = Drive::kCallers;
  int64_t kv_bytes = int64_t{1} << 30;  // of all pages of all models
  uint32_t max_sequences = 65536;
  uint32_t max_sequence_len = 1u << 20;
  uint32_t remembered_appends = 8;  // per (sequence, layer), for repeats; at least 1
  uint32_t max_items = 65536;       // accepted and not answered; above: QUEUE_FULL
  // Prefill is cut so that a step, and what decode waits for, stays near this.
  Nanos chunk_time = 5 * kMillisecond;
  // kOwnThread: longest wait for more calls before a launch while many callers are active.
  Nanos max_batch_wait = 50 * kMicrosecond;
  uint32_t max_launch_items = 4096;
  Nanos drain_grace = 10 * kSecond;  // Stop answers DRAINING to whatever is unfinished after this
};

struct EngineStats {
  uint64_t steps = 0;
  uint64_t launches = 0;
  uint64_t failed_launches = 0;
  uint64_t calls_completed = 0;
  uint64_t items_completed = 0;  // of Attend calls
  uint64_t items_failed = 0;     // of these
  uint64_t appended_tokens = 0;  // (token, layer) pairs written
  uint64_t replayed_items = 0;
  uint64_t opened_sequences = 0;
  uint64_t forked_sequences = 0;
  uint64_t expired_sequences = 0;
  kvcache::CacheStats cache;  // kCallers: as of the last moment without work; else 5 ms old at most
};

// Any thread may make any call. A callback must not block: from one a blocking call is INVALID, a
// Poll does nothing, Stop is forbidden, Submit is welcome.
class Engine {
 public:
  // INVALID names the option at fault.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        std::unique_ptr<Backend> backend);
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- models
  // Idempotent for an equal spec; MODEL_EXISTS names the first field that differs.
  absl::StatusOr<ModelInfo> DeclareModel(const ModelSpec& spec);
  // MODEL_IN_USE while sequences of it are open.
  absl::Status RemoveModel(const std::string& name);

  // ---- sequences. Results have one entry per item.
  absl::StatusOr<std::vector<absl::StatusOr<SequenceId>>> OpenSequences(const OpenRequest& request);
  // One sequence that stays until Close.
  absl::StatusOr<SequenceId> Open(const std::string& model, const std::string& owner);
  absl::StatusOr<std::vector<absl::StatusOr<std::vector<SequenceId>>>> Fork(
      absl::Span<const ForkItem> items);
  // targets[i] becomes a copy of sources[i] as it was before the call; all or nothing.
  absl::Status Reorder(absl::Span<const SequenceId> targets, absl::Span<const SequenceId> sources);
  // Committed lengths.
  absl::StatusOr<std::vector<absl::StatusOr<uint32_t>>> Truncate(
      absl::Span<const TruncateItem> items);
  // Closing what is already closed is no error.
  absl::StatusOr<std::vector<absl::Status>> Close(absl::Span<const SequenceId> sequences);
  absl::StatusOr<std::vector<absl::StatusOr<kvcache::SequenceDescription>>> Describe(
      absl::Span<const SequenceId> sequences);
  // How many sequences the owner has.
  absl::StatusOr<uint32_t> RenewLease(const std::string& owner, Nanos lease);

  // ---- attention. An error is one of the call as a whole; items fail in the result.
  absl::StatusOr<AttendResult> Attend(const AttendRequest& request);
  // OK: accepted, and `done` will be called once, on the thread that steps the engine. Otherwise
  // never. `done` must not throw.
  using AttendCallback = std::function<void(absl::StatusOr<AttendResult>)>;
  absl::Status Submit(const AttendRequest& request, AttendCallback done);

  // kCallers: takes what has arrived and does one step. Returns whether anything was done. Waits
  // while another thread steps. Leases end only in steps. kOwnThread: does nothing.
  bool Poll();
  // Refuses new calls, finishes those accepted within drain_grace.
  void Stop();

  EngineStats stats() const;
  std::string device_name() const;
  // OK, or why the device computes no more.
  absl::Status device_error() const;

 private:
  struct Core;
  explicit Engine(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace attn::engine
