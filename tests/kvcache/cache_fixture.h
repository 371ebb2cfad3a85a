// A cache, a store of contents, and the few steps that tests of the cache take over and over.
// Checks the cache's invariants after every test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/kvcache/kv_cache.h"
#include "tests/kvcache/content_store.h"

namespace attn::kvcache::test {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Matches a status (or StatusOr) by its reason.
MATCHER_P(FailsWith, reason, std::string("fails with ") + std::string(NameOf(reason))) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return ReasonOf(status) == reason;
}

// num_layers layers in one group.
inline CacheModel OneGroup(uint32_t num_layers, uint32_t page_size, int64_t page_bytes = 100) {
  CacheGroup group;
  group.page_bytes = page_bytes;
  group.layers.resize(num_layers);
  std::iota(group.layers.begin(), group.layers.end(), 0u);
  return {.num_layers = num_layers, .page_size = page_size, .groups = {group}};
}

// 0, 1, 2, … from `first`.
inline std::vector<Token> Tokens(size_t count, Token first) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class CacheFixture : public ::testing::Test {
 protected:
  ~CacheFixture() override { End(); }

  // Ends the cache, after a last look at it.
  void End() {
    if (cache_ == nullptr) return;
    EXPECT_EQ(cache_->CheckInvariants(), absl::OkStatus());
    cache_ = nullptr;
  }
  void Start(const KvCacheOptions& options) { cache_ = std::make_unique<KvCache>(options); }
  // A cache of num_pages pages of 100 bytes for one model.
  ModelSlot Start(const CacheModel& model, int64_t num_pages) {
    Start({.budget_bytes = num_pages * 100});
    return AddModel(model);
  }
  ModelSlot AddModel(const CacheModel& model) {
    const ModelSlot slot = cache_->AddModel(model).value();
    store_.AddModel(slot, model, *cache_);
    return slot;
  }

  SequenceId Open(ModelSlot model, const std::string& owner = "owner") {
    return cache_->Open({.model = model, .owner = owner}, now_).value();
  }
  std::vector<SequenceId> Fork(SequenceId parent, uint32_t at_len, int num_children = 1) {
    std::vector<SequenceId> children;
    for (int i = 0; i < num_children; ++i) children.push_back(cache_->NextId(SlotOf(parent)));
    EXPECT_EQ(cache_->Fork(parent, at_len, children), absl::OkStatus());
    return children;
  }

  // Extends at the layer's length with a new append token.
  absl::StatusOr<Reservation> Extend(SequenceId id, uint32_t layer, uint32_t count) {
    return cache_->Extend({.sequence = id,
                           .layer = layer,
                           .expected_len = cache_->LengthOf(id, layer),
                           .count = count,
                           .append_token = ++last_token_});
  }
  absl::StatusOr<Reservation> Rewind(SequenceId id, uint32_t layer, uint32_t expected_len,
                                     uint32_t count) {
    return cache_->Extend({.sequence = id,
                           .layer = layer,
                           .expected_len = expected_len,
                           .count = count,
                           .append_token = ++last_token_,
                           .rewind = true});
  }
  // The copies of a reservation, then the tokens.
  void Write(const Reservation& reservation, SequenceId id, uint32_t layer,
             const std::vector<Token>& tokens) {
    for (const PageMove& move : reservation.moves()) store_.Perform(move);
    store_.Write(SlotOf(id), layer, TableFor(id, layer), reservation.begin(), tokens);
  }
  absl::Status Append(SequenceId id, uint32_t layer, const std::vector<Token>& tokens) {
    absl::StatusOr<Reservation> reservation =
        Extend(id, layer, static_cast<uint32_t>(tokens.size()));
    if (!reservation.ok()) return reservation.status();
    Write(*reservation, id, layer, tokens);
    reservation->Commit();
    return absl::OkStatus();
  }
  // The same tokens to every layer, each layer's shifted by 1000 times its number.
  absl::Status AppendToAll(SequenceId id, size_t count, Token first) {
    for (uint32_t l = 0; l < store_.model(SlotOf(id)).num_layers; ++l) {
      const absl::Status appended = Append(id, l, Tokens(count, first + 1000 * l));
      if (!appended.ok()) return appended;
    }
    return absl::OkStatus();
  }

  PageTable TableFor(SequenceId id, uint32_t layer) const {
    return cache_->TableOf(id, store_.GroupOf(SlotOf(id), layer));
  }
  std::vector<PageId> PagesOf(SequenceId id, uint32_t group = 0) const {
    const PageTable table = cache_->TableOf(id, group);
    std::vector<PageId> pages;
    for (int32_t i = 0; i < table.num_pages; ++i) pages.push_back(table[i]);
    return pages;
  }
  std::vector<Token> Contents(SequenceId id, uint32_t layer = 0) const {
    return store_.Read(SlotOf(id), layer, TableFor(id, layer), cache_->LengthOf(id, layer));
  }
  // Pages in use (reserved or live) of one group.
  int64_t NumUsed(ModelSlot model, uint32_t group = 0) const {
    const PoolStats stats = cache_->StatsOf(model, group);
    return stats.reserved + stats.live;
  }

  Nanos now_ = kSecond;
  ContentStore store_;
  std::unique_ptr<KvCache> cache_;
  uint64_t last_token_ = 0;
};

}  // namespace attn::kvcache::test
