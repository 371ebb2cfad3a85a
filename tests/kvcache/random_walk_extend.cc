// The part of the random walk that appends: what Extend must answer, and what it must have done.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "tests/kvcache/random_walk.h"

namespace attn::kvcache::test {
namespace {

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

ExtendOptions RandomWalk::RandomExtend(SequenceId id) {
  const PlainSequence& plain = sequences_[id];
  // Mostly the shortest layer, so that sequences grow as a whole and can be forked.
  uint32_t layer =
      static_cast<uint32_t>(random_.Integer(0, static_cast<int64_t>(plain.layers.size()) - 1));
  for (uint32_t l = 0; l < plain.layers.size() && random_.Chance(0.9); ++l) {
    if (plain.layers[l].len() < plain.layers[layer].len()) layer = l;
  }
  const PlainLayer& state = plain.layers[layer];
  ExtendOptions extend{.sequence = id,
                       .layer = layer,
                       .expected_len = state.len(),
                       .count = static_cast<uint32_t>(random_.Integer(1, options_.max_append)),
                       .append_token = ++last_append_token_,
                       .rewind = random_.Chance(0.3)};
  if (!state.appends.empty() && random_.Chance(0.1)) {
    const PlainAppend& append =
        state.appends[random_.Integer(0, static_cast<int64_t>(state.appends.size()) - 1)];
    extend.expected_len = append.begin;
    extend.append_token = append.token;
    if (random_.Chance(0.8)) extend.count = append.count;
  } else if (random_.Chance(0.3)) {
    extend.expected_len = static_cast<uint32_t>(random_.Integer(0, state.len() + 1));
  } else if (random_.Chance(0.02)) {
    extend.count = random_.OneOf({uint32_t{100000}, UINT32_MAX});
  }
  return extend;
}

// kOk where only pages can be wanting.
Reason RandomWalk::ExpectedReason(const ExtendOptions& extend) const {
  const PlainLayer& layer = sequences_.at(extend.sequence).layers[extend.layer];
  for (const PlainAppend& append : layer.appends) {
    if (append.token == extend.append_token && append.begin == extend.expected_len) {
      return append.count == extend.count ? Reason::kOk : Reason::kInvalid;
    }
  }
  const bool fits =
      layer.len() == extend.expected_len || (extend.rewind && layer.len() > extend.expected_len);
  if (!fits) return Reason::kLengthMismatch;
  if (layer.reserved_end > 0) return Reason::kInvalid;
  const uint64_t end = uint64_t{extend.expected_len} + extend.count;
  return end > options_.cache.max_sequence_len ? Reason::kTooLarge : Reason::kOk;
}

bool RandomWalk::FitsAlone(const ExtendOptions& extend) const {
  const PlainSequence& plain = sequences_.at(extend.sequence);
  const CacheModel& model = ModelOf(extend.sequence);
  int64_t bytes = 0;
  for (uint32_t g = 0; g < model.groups.size(); ++g) {
    int64_t len = 0;
    for (const uint32_t l : model.groups[g].layers) {
      const PlainLayer& layer = plain.layers[l];
      len = std::max<int64_t>(len, l == extend.layer ? int64_t{extend.expected_len} + extend.count
                                                     : std::max(layer.len(), layer.reserved_end));
    }
    const PoolGeometry geometry = cache_->GeometryOf(model, g);
    const int64_t pages = DivideUp(len, model.page_size);
    if (pages > geometry.num_pages) return false;
    bytes += DivideUp(pages, geometry.pages_per_slab) * geometry.pages_per_slab *
             model.groups[g].page_bytes;
  }
  return bytes <= options_.cache.budget_bytes;
}

// Even if every page to be written were a new one, and no other pool gave a slab back.
bool RandomWalk::CertainlyFitsNow(const ExtendOptions& extend, const Snapshot& before) const {
  const CacheModel& model = ModelOf(extend.sequence);
  const uint32_t group = store_.GroupOf(SlotOf(extend.sequence), extend.layer);
  const PoolGeometry geometry = cache_->GeometryOf(model, group);
  const int64_t slab_bytes = geometry.pages_per_slab * model.groups[group].page_bytes;
  const int64_t slabs =
      std::min((before.stats.budget_bytes - before.stats.backed_bytes) / slab_bytes,
               before.pool.unbacked / geometry.pages_per_slab);
  const int64_t end = int64_t{extend.expected_len} + extend.count;
  const int64_t most_wanted =
      DivideUp(end, model.page_size) - extend.expected_len / model.page_size;
  return most_wanted <= before.pool.free + slabs * geometry.pages_per_slab;
}

void RandomWalk::CheckRefusal(const ExtendOptions& extend, Reason reason, const Snapshot& before) {
  const Snapshot after = SnapshotOf(extend.sequence, extend.layer);
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.stats.pages.live, before.stats.pages.live);
  EXPECT_EQ(after.stats.pages.reserved, before.stats.pages.reserved);
  EXPECT_TRUE(options_.backing_refuses > 0 ||
              after.stats.backed_bytes == before.stats.backed_bytes);
  const Reason expected = ExpectedReason(extend);
  if (expected != Reason::kOk) {
    EXPECT_EQ(reason, expected);
  } else if (!FitsAlone(extend)) {
    EXPECT_EQ(reason, Reason::kTooLarge);
  } else {
    EXPECT_EQ(reason, Reason::kNoPages);
    EXPECT_FALSE(options_.backing_refuses == 0 && CertainlyFitsNow(extend, before));
  }
}

void RandomWalk::CheckReplay(const ExtendOptions& extend, const Reservation& reservation) {
  EXPECT_TRUE(reservation.moves().empty());
  EXPECT_EQ(reservation.begin(), extend.expected_len);
  EXPECT_EQ(reservation.end(), extend.expected_len + extend.count);
}

// The plain layer is cut by now. Every page to be written is the sequence's own; pages that another
// sequence saw were exchanged, and their copies hold exactly what this sequence can read.
void RandomWalk::CheckMoves(const ExtendOptions& extend, const Reservation& reservation,
                            const Snapshot& before) {
  const PlainSequence& plain = sequences_[extend.sequence];
  const CacheModel& model = ModelOf(extend.sequence);
  const uint32_t group = store_.GroupOf(SlotOf(extend.sequence), extend.layer);
  const std::vector<PageId> pages = PagesOf(extend.sequence, group);
  size_t num_moves = 0;
  for (uint32_t i = reservation.begin() / model.page_size;
       i <= (reservation.end() - 1) / model.page_size; ++i) {
    ASSERT_LT(i, pages.size());
    EXPECT_FALSE(IsSeenByAnother(pages[i], extend.sequence, group)) << "page index " << i;
    const bool exchanged = i < before.pages.size() && pages[i] != before.pages[i] &&
                           IsSeenByAnother(before.pages[i], extend.sequence, group);
    if (!exchanged) continue;
    std::vector<uint32_t> held;
    for (const uint32_t l : model.groups[group].layers) {
      const int64_t beyond = int64_t{plain.layers[l].len()} - int64_t{i} * model.page_size;
      held.push_back(static_cast<uint32_t>(std::clamp<int64_t>(beyond, 0, model.page_size)));
    }
    if (std::all_of(held.begin(), held.end(), [](uint32_t slots) { return slots == 0; })) continue;
    ASSERT_LT(num_moves, reservation.moves().size());
    const PageMove& move = reservation.moves()[num_moves++];
    EXPECT_EQ(move.model, SlotOf(extend.sequence));
    EXPECT_EQ(move.group, group);
    EXPECT_EQ(move.source, before.pages[i]);
    EXPECT_EQ(move.target, pages[i]);
    EXPECT_EQ(move.slots_per_layer, held);
  }
  EXPECT_EQ(reservation.moves().size(), num_moves);
  counts_["moves"] += static_cast<int64_t>(num_moves);
}

void RandomWalk::ExtendOne() {
  const SequenceId id = AnySequence();
  const ExtendOptions extend = RandomExtend(id);
  SCOPED_TRACE(absl::StrCat("extend layer ", extend.layer, " at ", extend.expected_len, " by ",
                            extend.count, extend.rewind ? ", may rewind" : ""));
  const Snapshot before = SnapshotOf(id, extend.layer);
  absl::StatusOr<Reservation> reservation = cache_->Extend(extend);
  const Reason reason = ReasonOf(reservation.status());
  Count(absl::StrCat("extend ", NameOf(reason)));
  if (reason != Reason::kOk) return CheckRefusal(extend, reason, before);
  ASSERT_EQ(ExpectedReason(extend), Reason::kOk);
  if (reservation->replayed()) {
    Count("replayed");
    return CheckReplay(extend, *reservation);
  }
  PlainLayer& layer = sequences_[id].layers[extend.layer];
  if (layer.len() > extend.expected_len) Count("rewound");
  layer.CutTo(extend.expected_len);
  ASSERT_EQ(reservation->begin(), extend.expected_len);
  ASSERT_EQ(reservation->end(), extend.expected_len + extend.count);
  CheckMoves(extend, *reservation, before);
  layer.reserved_end = reservation->end();
  pending_moves_.insert(pending_moves_.end(), reservation->moves().begin(),
                        reservation->moves().end());
  auto in_flight = std::make_unique<InFlight>();
  in_flight->reservation = *std::move(reservation);
  in_flight->sequence = id;
  in_flight->layer = extend.layer;
  in_flight->append_token = extend.append_token;
  for (uint32_t i = 0; i < extend.count; ++i) in_flight->tokens.push_back(++last_token_);
  in_flight_.push_back(std::move(in_flight));
}

// A launch: all copies, then the rows of one append, which is committed or not.
void RandomWalk::SettleOne() {
  if (in_flight_.empty()) return ExtendOne();
  const int64_t index = random_.Integer(0, static_cast<int64_t>(in_flight_.size()) - 1);
  const std::unique_ptr<InFlight> settled = std::move(in_flight_[index]);
  in_flight_.erase(in_flight_.begin() + index);
  const auto found = sequences_.find(settled->sequence);
  if (found == sequences_.end()) {
    if (random_.Chance(0.5)) settled->reservation.Commit();
    return Count("settled after close");
  }
  PerformPendingMoves();
  PlainLayer& layer = found->second.layers[settled->layer];
  store_.Write(SlotOf(settled->sequence), settled->layer,
               TableFor(settled->sequence, settled->layer), settled->reservation.begin(),
               settled->tokens);
  layer.reserved_end = 0;
  if (random_.Chance(0.2)) {
    settled->reservation = Reservation();
    return Count("rolled back");
  }
  settled->reservation.Commit();
  Count("committed");
  layer.appends.push_back({.token = settled->append_token,
                           .begin = layer.len(),
                           .count = static_cast<uint32_t>(settled->tokens.size())});
  if (layer.appends.size() > options_.cache.remembered_appends) layer.appends.pop_front();
  layer.tokens.insert(layer.tokens.end(), settled->tokens.begin(), settled->tokens.end());
}

}  // namespace attn::kvcache::test
