// A device that holds the bytes of K and V and computes attention over them.
//
//   std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 2}).value();
//   std::unique_ptr<KvStore> store = backend->CreateKvStore(spec, {.num_pages = 64}).value();
//   Batch batch;
//   batch.appends.push_back({.k = k, .v = v, .pages = pages, .count = 8});
//   batch.rows.push_back({.q = q, .out = out, .pages = pages, .q_len = 8, .kv_end = 8, …});
//   Ticket ticket = backend->Launch(*store, batch).value();
//   absl::Status done = backend->Wait(ticket);
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/attention/attention_spec.h"
#include "attn/attention/batch.h"

namespace attn {

// The pages of one layer group on one device: an address range reserved at full size, of which
// slabs gain and lose their memory. A page may be used between CommitPages and ReleasePages.
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual const AttentionSpec& spec() const = 0;
  virtual int32_t num_pages() const = 0;
  // Bytes of one page, all layers, K and V.
  virtual int64_t page_bytes() const = 0;
  // Makes pages [first, first + count) usable; their content is undefined.
  virtual absl::Status CommitPages(PageId first, int32_t count) = 0;
  // Gives the memory of these pages back.
  virtual void ReleasePages(PageId first, int32_t count) = 0;
};

struct KvStoreOptions {
  int32_t num_pages = 0;
};

struct Ticket {
  uint64_t value = 0;
  bool is_done = false;  // Wait returns at once
};

// What a launch costs, in the units the scheduler plans with.
struct Cost {
  double attend_flops = 0;  // 2 (D + Dv) per visible (row, query head, key) pair
  double moved_bytes = 0;   // K and V read, appended or copied
};

// One thread at a time makes calls, whichever it is. Different backends are independent.
class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu, 2 threads, avx3", for people.
  virtual std::string device_name() const = 0;
  // OK, or UNSUPPORTED naming the field and what is supported.
  virtual absl::Status Supports(const AttentionSpec& spec) const = 0;
  // Bytes of one page with this spec. REQUIRES: Supports(spec).ok().
  virtual int64_t PageBytes(const AttentionSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<KvStore>> CreateKvStore(const AttentionSpec& spec,
                                                                 const KvStoreOptions& options) = 0;
  // Starts copies, appends and rows in that order and returns without waiting where the device
  // allows it. The batch and all it points to must live until Wait returns. An error here means
  // that nothing of the batch has happened.
  // Rows that see no key and have no sinks get out 0 and lse -inf.
  virtual absl::StatusOr<Ticket> Launch(KvStore& store, const Batch& batch) = 0;
  // Once per ticket. DEVICE_LOST or INTERNAL: what the batch has written is undefined.
  virtual absl::Status Wait(Ticket ticket) = 0;

  // Estimate for an entry, for cutting prefill. Pure.
  virtual Cost CostOf(const AttentionSpec& spec, const AttendEntry& entry) const = 0;
  // Prefill may be cut at rows whose absolute position is a multiple of this, and between KV heads.
  virtual int32_t prefill_cut_rows() const = 0;
  // Keys of the longest sequence over which rows are computed.
  virtual int64_t max_kv_len() const { return int64_t{1} << 30; }
};

}  // namespace attn
