// A random walk over all calls of a KvCache, beside plain vectors that say what each sequence
// holds. After every step the walk compares outcomes, contents and lengths, and lets the cache
// check itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "attn/kvcache/kv_cache.h"
#include "tests/kvcache/choices.h"
#include "tests/kvcache/content_store.h"

namespace attn::kvcache::test {

struct WalkOptions {
  uint64_t seed = 0;
  int num_steps = 0;
  // If not empty, what the walk decides by instead of the seed, and where it ends. Outlive the
  // walk.
  std::span<const uint8_t> choices = {};
  std::vector<CacheModel> models;
  KvCacheOptions cache;
  uint32_t max_append = 12;    // tokens at once
  size_t max_sequences = 8;    // more are closed again
  double backing_refuses = 0;  // probability that a slab gets no memory
};

class RandomWalk {
 public:
  explicit RandomWalk(const WalkOptions& options);
  ~RandomWalk();

  // Walks; what differs is reported as a GoogleTest failure, and ends the walk.
  void Run();

  // How often each outcome came up: "extend ok", "extend NO_PAGES", "moves", …
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  struct PlainAppend {
    uint64_t token = 0;
    uint32_t begin = 0;
    uint32_t count = 0;
  };
  struct PlainLayer {
    std::vector<Token> tokens;
    std::deque<PlainAppend> appends;  // oldest first
    uint32_t reserved_end = 0;
    void CutTo(uint32_t len);
    uint32_t len() const { return static_cast<uint32_t>(tokens.size()); }
  };
  struct PlainSequence {
    std::string owner;
    std::vector<PlainLayer> layers;
    uint32_t num_uses = 0;
    uint32_t CommittedLen() const;
    uint32_t LongestLen() const;
    bool HasOpenReservation() const;
  };
  struct PlainOwner {
    Nanos lease = 0;
    Nanos expires = 0;
  };
  struct InFlight {
    Reservation reservation;
    SequenceId sequence;
    uint32_t layer = 0;
    uint64_t append_token = 0;
    std::vector<Token> tokens;
    bool rows_written = false;
  };
  // What Extend could have changed.
  struct Snapshot {
    std::vector<PageId> pages;
    CacheStats stats;
    PoolStats pool;
  };
  class FlakyBacking;

  // ---- steps
  void Step();
  void OpenOne();
  void ExtendOne();
  void SettleOne();
  void ForkOne();
  void ReorderSome();
  void TruncateOne();
  void CloseOne();
  void UseOrDropOne();
  void RenewOne();
  void ExpireSome();
  void ProbeBadIds();

  // ---- what Extend must do
  ExtendOptions RandomExtend(SequenceId id);
  Reason ExpectedReason(const ExtendOptions& options) const;
  bool FitsAlone(const ExtendOptions& options) const;
  bool CertainlyFitsNow(const ExtendOptions& options, const Snapshot& before) const;
  void CheckRefusal(const ExtendOptions& options, Reason reason, const Snapshot& before);
  void CheckMoves(const ExtendOptions& options, const Reservation& reservation,
                  const Snapshot& before);
  void CheckReplay(const ExtendOptions& options, const Reservation& reservation);

  // ---- what all steps need
  Snapshot SnapshotOf(SequenceId id, uint32_t layer) const;
  std::vector<PageId> PagesOf(SequenceId id, uint32_t group) const;
  bool IsSeenByAnother(PageId page, SequenceId id, uint32_t group) const;
  const CacheModel& ModelOf(SequenceId id) const { return store_.model(SlotOf(id)); }
  PageTable TableFor(SequenceId id, uint32_t layer) const;
  SequenceId AnySequence();
  std::string AnyOwner();
  void Forget(SequenceId id);
  void PerformPendingMoves();
  void PoisonUnused();
  void CheckEverything();
  void Count(const std::string& what) { ++counts_[what]; }

  const WalkOptions options_;
  Choices random_;
  std::unique_ptr<FlakyBacking> backing_;
  std::unique_ptr<KvCache> cache_;
  ContentStore store_;
  std::vector<ModelSlot> slots_;
  std::map<SequenceId, PlainSequence> sequences_;
  std::map<std::string, PlainOwner> owners_;
  std::vector<SequenceId> closed_;
  std::vector<std::unique_ptr<InFlight>> in_flight_;
  std::vector<PageMove> pending_moves_;
  std::map<std::string, int64_t> counts_;
  Nanos now_ = kSecond;
  uint64_t last_append_token_ = 0;
  Token last_token_ = 0;
};

}  // namespace attn::kvcache::test
