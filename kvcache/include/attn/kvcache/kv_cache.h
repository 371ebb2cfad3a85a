// Which page holds which token: models, sequences, their lengths per layer, forks, leases, and the
// byte budget behind the pages. Bookkeeping only: no K, no V, no device.
//
//   KvCache cache({.budget_bytes = int64_t{1} << 30});
//   const CacheGroup group = {.layers = {0, 1}, .page_bytes = 65536};
//   ModelSlot model =
//       cache.AddModel({.num_layers = 2, .page_size = 16, .groups = {group}}).value();
//   SequenceId id = cache.Open({.model = model, .owner = "me"}, now).value();
//   Reservation r =
//       cache.Extend({.sequence = id, .layer = 0, .count = 7, .append_token = 1}).value();
//   … perform r.moves(), write slots [r.begin(), r.end()) of the pages in cache.TableOf(id, 0) …
//   r.Commit();
//
// Words: a page holds page_size tokens of all layers of one layer group. A sequence has one page
// list per group and one length per layer; its committed length is the least of its layers'
// lengths. Every group of every model has its own page ids, 0 and up, over its own address range,
// backed in slabs taken from one budget.
//
// Single-threaded by contract: one thread, the engine's, makes every call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/base/clock.h"
#include "attn/base/ids.h"
#include "attn/kvcache/page_move.h"
#include "attn/kvcache/page_table.h"
#include "attn/kvcache/reservation.h"

namespace attn::kvcache {

struct CacheGroup {
  std::vector<uint32_t> layers;  // layer numbers of the model
  int64_t page_bytes = 0;        // bytes of one page, all layers of the group, K and V
};

// Every layer 0..num_layers-1 stands in exactly one group.
struct CacheModel {
  uint32_t num_layers = 0;
  uint32_t page_size = 0;  // tokens
  std::vector<CacheGroup> groups;
};

// Where a group's pages lie: ids 0..num_pages-1, slab s holding ids
// [s * pages_per_slab, (s + 1) * pages_per_slab).
struct PoolGeometry {
  int32_t num_pages = 0;
  int32_t pages_per_slab = 0;  // a power of two
};

// Told when address ranges gain and lose their memory. May be null: memory is then always there.
// Outlives the cache, which gives all slabs back when it ends.
class SlabBacking {
 public:
  virtual ~SlabBacking() = default;
  // An error makes the pages of that slab unavailable now; the caller's operation gets NO_PAGES.
  virtual absl::Status CommitSlab(ModelSlot model, uint32_t group, int32_t slab) = 0;
  virtual void ReleaseSlab(ModelSlot model, uint32_t group, int32_t slab) = 0;
};

struct KvCacheOptions {
  int64_t budget_bytes = int64_t{1} << 30;  // for all models together
  uint32_t max_sequences = 65536;
  uint32_t max_sequence_len = 1u << 20;  // tokens
  uint32_t remembered_appends = 8;       // per (sequence, layer)
  SlabBacking* backing = nullptr;
};

struct OpenOptions {
  ModelSlot model;
  std::string owner;
  Nanos lease = 30 * kSecond;
};

struct ExtendOptions {
  SequenceId sequence;
  uint32_t layer = 0;
  uint32_t expected_len = 0;
  uint32_t count = 0;         // > 0
  uint64_t append_token = 0;  // not 0
  bool rewind = false;        // a longer layer is cut to expected_len
};

// An owner whose lease ran out, and how many sequences that closed.
struct ExpiredOwner {
  std::string name;
  uint32_t num_sequences = 0;
};

struct SequenceDescription {
  SequenceId sequence;
  ModelSlot model;
  std::string owner;
  uint32_t committed_len = 0;
  std::vector<uint32_t> layer_lens;  // one per layer
  uint64_t num_pages = 0;            // referenced, all groups
  uint64_t num_shared_pages = 0;     // of these, also referenced elsewhere
  Nanos lease_remaining = 0;
};

// Which open sequences to list: those of one model, of one owner, or all.
struct ListOptions {
  ModelSlot model{};       // slot 0: of any
  std::string owner = {};  // empty: of any
  SequenceId after{};      // only ids above this one
  size_t max = 1000;
};

struct SequenceSummary {
  SequenceId sequence;
  std::string owner;
  uint32_t committed_len = 0;
  uint32_t longest_len = 0;  // of its layers
  uint64_t num_pages = 0;    // referenced, all groups
  Nanos lease_remaining = 0;
};

struct PoolStats {
  int64_t free = 0;      // backed and unused
  int64_t reserved = 0;  // in a list, behind every committed length
  int64_t live = 0;
  int64_t unbacked = 0;
};

struct CacheStats {
  int64_t num_sequences = 0;
  int64_t budget_bytes = 0;
  int64_t backed_bytes = 0;
  int64_t live_bytes = 0;
  PoolStats pages;  // summed over all pools
};

// Errors of all calls carry a Reason (attn/base/error.h): UNKNOWN_SEQUENCE for ids never given out,
// STALE_SEQUENCE for closed or expired ones, LENGTH_MISMATCH, NO_PAGES (full now), TOO_LARGE (can
// never fit), QUOTA (too many sequences), INVALID. A call that fails changes nothing. A sequence
// with an open reservation can be read, extended in another layer and closed, but neither copied
// nor cut: that is INVALID.
class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // ---- models
  absl::StatusOr<ModelSlot> AddModel(const CacheModel& model);
  // As AddModel, but the slot is the caller's choice; it must be free. A slot may be used again:
  // ids of its old model stay stale.
  absl::Status AddModelAt(ModelSlot slot, const CacheModel& model);
  // MODEL_IN_USE while sequences of it are open. Its slabs return to the budget.
  absl::Status RemoveModel(ModelSlot slot);
  // Pure: what AddModel would set up for `group`.
  PoolGeometry GeometryOf(const CacheModel& model, uint32_t group) const;

  // ---- sequences
  // An id that will name a sequence of `model` later (OpenAt, Fork). Never given out twice.
  // REQUIRES: the slot has a model.
  SequenceId NextId(ModelSlot model);
  absl::StatusOr<SequenceId> Open(const OpenOptions& options, Nanos now);
  absl::Status OpenAt(SequenceId id, const OpenOptions& options, Nanos now);
  // Children start as copies of the parent's first at_len tokens in every layer, with the parent's
  // owner and no remembered appends. REQUIRES of the caller: child ids from NextId of the same
  // model. INVALID when at_len is above the parent's committed length. No KV bytes move; costs
  // O(at_len / page_size / kPagesPerChunk) per child.
  absl::Status Fork(SequenceId parent, uint32_t at_len, std::span<const SequenceId> children);
  // targets[i] becomes a copy of sources[i] as it was before the call, whole (every layer at its
  // own length), with no remembered appends; it keeps its own owner. All or nothing. INVALID when
  // targets repeat, sizes differ or models differ.
  absl::Status Reorder(std::span<const SequenceId> targets, std::span<const SequenceId> sources);
  // Layers longer than len are cut to it, others stay; above the longest layer: INVALID. A cut to
  // len forgets every append that ends above len. Returns the committed length.
  absl::StatusOr<uint32_t> Truncate(SequenceId id, uint32_t len);
  // Closing what was closed already is no error; an id never given out is UNKNOWN_SEQUENCE.
  absl::Status Close(SequenceId id);
  absl::StatusOr<SequenceDescription> Describe(SequenceId id, Nanos now) const;

  // In the order of ids. For people who look on: costs a look at every open sequence.
  std::vector<SequenceSummary> List(const ListOptions& options, Nanos now) const;

  // OK, or why the id names no open sequence. `field` goes into the message.
  absl::Status CheckOpen(SequenceId id, absl::string_view field = "sequence_id") const;
  // REQUIRES for the following: CheckOpen(id).ok().
  uint32_t LengthOf(SequenceId id, uint32_t layer) const;
  uint32_t CommittedLengthOf(SequenceId id) const;
  const std::string& OwnerOf(SequenceId id) const;
  PageTable TableOf(SequenceId id, uint32_t group) const;

  // ---- append
  // The append rule of the wire, for one item; the first line that fits, L the layer's length:
  //   append_token was used at expected_len with the same count   replayed() is set
  //   the same token at expected_len with another count           INVALID
  //   L == expected_len                                           reserve
  //   L > expected_len and rewind       cut to expected_len, once the pages are secured; reserve
  //   else                                                        LENGTH_MISMATCH
  // Pages are exclusive to the sequence wherever [begin, end) will be written. At most one
  // reservation of a (sequence, layer) is open at a time, another is INVALID; layers of one
  // sequence may overlap. A reservation of a sequence that is closed meanwhile ends without effect.
  absl::StatusOr<Reservation> Extend(const ExtendOptions& options);

  // ---- leases (an owner's lease covers all its sequences)
  // Extends to now + lease unless it already runs longer, and makes `lease` (> 0) the owner's own;
  // before that it is the longest that an Open of the owner asked for. NOT_FOUND-like errors do not
  // exist: an owner without sequences is simply 0 sequences.
  struct Renewal {
    uint32_t num_sequences = 0;
    // Lost since the last renewal (expired behind the owner's back cannot happen; device loss).
    std::vector<SequenceId> lost;
  };
  Renewal Renew(const std::string& owner, Nanos lease, Nanos now);
  // Any call on a sequence counts as one of its owner: extends by the owner's own lease. No-op when
  // the sequence is not open.
  void Touch(SequenceId id, Nanos now);
  // While a sequence is in use nothing of its owner expires. Counted. REQUIRES: open.
  void AddUse(SequenceId id);
  void DropUse(SequenceId id);  // no-op when it has been closed meanwhile
  // Closes every sequence of every owner whose lease has run out and who uses none; returns them.
  // `owners`, if given, gets these owners.
  std::vector<SequenceId> Expire(Nanos now, std::vector<ExpiredOwner>* owners = nullptr);
  // When Expire could next find something; kNever without sequences.
  Nanos NextExpiry() const;

  // ---- accounting
  CacheStats Stats() const;
  PoolStats StatsOf(ModelSlot model, uint32_t group) const;
  // Recomputes everything: page states against lists and reservations, reference counts against
  // chunks, chunks against sequences, slabs against the budget. OK, or INTERNAL with the first
  // difference. Slow; for tests and an idle server.
  absl::Status CheckInvariants() const;

 private:
  friend class Reservation;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn::kvcache
