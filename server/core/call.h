// A validated request on its way through the engine, and its result. No protobuf, no gRPC.
//
// A call is made and checked at a border (server/rpc for the wire, server/embed for callers in the
// process), pushed into the CallQueue, owned by the engine until it is settled, and then handed to
// its CallSink, which encodes the result on the completion thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "attn/base/clock.h"
#include "attn/base/dtype.h"
#include "attn/base/ids.h"
#include "attn/kvcache/kv_cache.h"
#include "server/core/backlog.h"
#include "server/core/model.h"

namespace attn::server {

enum class Priority : uint8_t { kBatch = 1, kNormal = 2, kInteractive = 3 };

// Bits of AttendItem::flags; numbers equal attn.v1.ItemFlag.
enum ItemFlagBits : uint32_t {
  kItemNonCausal = 1,
  kItemAppendAfter = 2,
  kItemRewind = 4,
  kItemNoSinkLogits = 8,
};

// One stream's identity in the engine: where its aliases live and what closes with it. Made by the
// rpc layer, touched by nobody but the engine (server/core/stream_scope.h defines it).
class StreamScope;

// How a call names a sequence: by id, or by an alias of its stream (ids below 2^32).
struct SequenceRef {
  uint64_t value = 0;
  bool is_alias() const { return value < (uint64_t{1} << 32); }
};

// ------------------------------------------------------------------------------------- requests

struct AttendItem {
  SequenceRef sequence;
  uint32_t layer = 0;
  uint32_t expected_len = 0;
  uint32_t q_len = 0;
  uint32_t kv_new_len = 0;
  uint32_t flags = 0;  // ItemFlagBits
  uint64_t append_token = 0;
  std::optional<uint32_t> q_start;  // absent: rows end where the keys end
  int64_t q_row = 0;                // first row of this item in q, out and lse
  int64_t kv_row = 0;               // first row of this item in k and v
  // The item's model; null only if `refused` is set.
  ModelPtr model;
  // Set when the border found this item at fault: it is answered with this and not run.
  absl::Status refused;
};

// Tensors that stay in the caller's memory until the call comes back, instead of in the call and
// its result. Row-major as there; `lse` may be null.
struct BorrowedTensors {
  const char* q = nullptr;
  const char* k = nullptr;
  const char* v = nullptr;
  char* out = nullptr;
  float* lse = nullptr;
};

struct AttendCall {
  std::vector<AttendItem> items;
  // Equal for all items.
  DType activation_dtype = DType::kFloat32;
  uint32_t num_q_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim_qk = 0;
  uint32_t head_dim_v = 0;
  // Dense tensors of the activation dtype, rows in item order.
  std::string q;  // [total_q, num_q_heads, head_dim_qk]
  std::string k;  // [total_kv_new, num_kv_heads, head_dim_qk]
  std::string v;  // [total_kv_new, num_kv_heads, head_dim_v]
  // If set, q, k and v are empty, and so are out and lse of the result.
  std::optional<BorrowedTensors> borrowed;
  int64_t total_q = 0;
  DType out_dtype = DType::kFloat32;
  bool return_lse = false;
  Priority priority = Priority::kNormal;

  const char* q_data() const { return borrowed ? borrowed->q : q.data(); }
  const char* k_data() const { return borrowed ? borrowed->k : k.data(); }
  const char* v_data() const { return borrowed ? borrowed->v : v.data(); }
};

struct OpenCall {
  struct Item {
    uint32_t alias = 0;  // 0: none
    Priority priority = Priority::kNormal;
  };
  ModelPtr model;
  std::string owner;
  Nanos lease = 0;
  bool close_with_stream = false;
  uint64_t request_key = 0;  // 0: none
  std::vector<Item> items;
};

struct ForkCall {
  struct Item {
    SequenceRef parent;
    std::optional<uint32_t> at_len;
    uint32_t num_children = 0;
    uint32_t first_alias = 0;  // 0: none
    absl::Status refused;
  };
  uint64_t request_key = 0;
  std::vector<Item> items;
};

struct ReorderCall {
  uint64_t request_key = 0;
  std::vector<SequenceRef> targets;
  std::vector<SequenceRef> sources;
};

struct TruncateCall {
  struct Item {
    SequenceRef sequence;
    uint32_t len = 0;
    absl::Status refused;
  };
  uint64_t request_key = 0;
  std::vector<Item> items;
};

struct CloseCall {
  std::vector<SequenceRef> sequences;
};

struct DescribeCall {
  std::vector<SequenceRef> sequences;
};

struct ListCall {
  kvcache::ListOptions which;
};

struct RenewCall {
  std::string owner;
  Nanos lease = 0;
};

struct DeclareModelCall {
  ModelDefinition definition;
};

struct RemoveModelCall {
  std::string name;
};

// The stream is gone: forget its aliases, close what was opened with close_with_stream.
struct StreamEndedCall {};

using Request =
    std::variant<AttendCall, OpenCall, ForkCall, ReorderCall, TruncateCall, CloseCall, DescribeCall,
                 ListCall, RenewCall, DeclareModelCall, RemoveModelCall, StreamEndedCall>;

// -------------------------------------------------------------------------------------- results

struct Timing {
  Nanos queue = 0;             // accepted until chosen for its first launch
  Nanos input = 0;             // decoding and copying in; set by the rpc layer
  Nanos compute = 0;           // launches until done; shared by all requests of the launch
  uint32_t launch_items = 0;   // items of all clients in the (last) launch
  uint32_t launch_q_rows = 0;  // query rows of all clients in that launch
};

struct AttendResult {
  struct Item {
    absl::Status status;
    uint32_t new_len = 0;  // the layer's length now; 0 for unknown sequences
    bool replayed = false;
  };
  std::vector<Item> items;
  std::string out;  // [total_q, num_q_heads, head_dim_v], out_dtype; NaN in rows of failed items
  std::string lse;  // fp32 [total_q, num_q_heads] if asked for
  Timing timing;
};

struct OpenResult {
  std::vector<absl::StatusOr<SequenceId>> items;
};

struct ForkResult {
  // Per item its status, and the children of all items one behind another (0 where failed).
  std::vector<absl::Status> items;
  std::vector<SequenceId> children;
};

struct ReorderResult {};

struct TruncateResult {
  std::vector<absl::StatusOr<uint32_t>> items;  // committed lengths
};

struct CloseResult {
  std::vector<absl::Status> items;
};

struct DescribeResult {
  std::vector<absl::StatusOr<kvcache::SequenceDescription>> items;
};

struct ListResult {
  std::vector<kvcache::SequenceSummary> sequences;
};

struct RenewResult {
  Nanos lease = 0;
  kvcache::KvCache::Renewal renewal;
};

struct DeclareModelResult {
  ModelPtr model;
  bool already_declared = false;
};

struct RemoveModelResult {};
struct StreamEndedResult {};

using Result = std::variant<AttendResult, OpenResult, ForkResult, ReorderResult, TruncateResult,
                            CloseResult, DescribeResult, ListResult, RenewResult,
                            DeclareModelResult, RemoveModelResult, StreamEndedResult>;

// ----------------------------------------------------------------------------------------- call

struct Call;

// Where settled calls go. Engine thread; must not block. Each call that was accepted by the queue
// comes back exactly once, by one of the two; the engine does not touch the sink after its last.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Others follow at once.
  virtual void Complete(std::unique_ptr<Call> call) = 0;
  // The last one for now.
  virtual void CompleteLast(std::unique_ptr<Call> call) { Complete(std::move(call)); }
};

// Set by any thread, looked at by the engine before each launch and each chunk.
using CancelFlag = std::atomic<bool>;

struct Call {
  uint64_t id = 0;  // for logs
  Request request;
  std::shared_ptr<StreamScope> stream;  // null for unary calls
  std::shared_ptr<CancelFlag> cancelled = std::make_shared<CancelFlag>(false);
  Nanos arrival = 0;
  Nanos deadline = kNever;
  CallTime time{};  // set by Engine::Submit
  CallSink* sink = nullptr;
  // For the sink: where the answer goes. The core does not look at it.
  std::shared_ptr<void> origin;

  // The outcome. A call that failed as a whole has a status, else result has the alternative that
  // belongs to the request. (Items fail one by one inside the result.)
  absl::Status status;
  Result result;

  // What admission counts: items and tensor bytes, in and out, that the call holds itself.
  size_t num_items() const;
  size_t num_bytes() const;
};

}  // namespace attn::server
