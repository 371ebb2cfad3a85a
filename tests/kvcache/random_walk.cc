#include "tests/kvcache/random_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"

namespace attn::kvcache::test {

class RandomWalk::FlakyBacking : public SlabBacking {
 public:
  FlakyBacking(uint64_t seed, double refuses) : random_(seed), refuses_(refuses) {}
  absl::Status CommitSlab(ModelSlot model, uint32_t group, int32_t slab) override {
    if (random_.Chance(refuses_)) return absl::ResourceExhaustedError("no memory");
    EXPECT_TRUE(committed_.insert({model, group, slab}).second) << "slab committed twice";
    return absl::OkStatus();
  }
  void ReleaseSlab(ModelSlot model, uint32_t group, int32_t slab) override {
    EXPECT_EQ(committed_.erase({model, group, slab}), 1u) << "slab released twice";
  }
  size_t num_committed() const { return committed_.size(); }

 private:
  attn::test::Random random_;
  const double refuses_;
  std::set<std::tuple<ModelSlot, uint32_t, int32_t>> committed_;
};

void RandomWalk::PlainLayer::CutTo(uint32_t len) {
  if (tokens.size() <= len) return;
  tokens.resize(len);
  while (!appends.empty() && appends.back().begin + appends.back().count > len) appends.pop_back();
}

uint32_t RandomWalk::PlainSequence::CommittedLen() const {
  uint32_t len = UINT32_MAX;
  for (const PlainLayer& layer : layers) len = std::min(len, layer.len());
  return len;
}

uint32_t RandomWalk::PlainSequence::LongestLen() const {
  uint32_t len = 0;
  for (const PlainLayer& layer : layers) len = std::max(len, layer.len());
  return len;
}

bool RandomWalk::PlainSequence::HasOpenReservation() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const PlainLayer& layer) { return layer.reserved_end > 0; });
}

RandomWalk::RandomWalk(const WalkOptions& options)
    : options_(options),
      random_(options.choices.empty() ? Choices(options.seed) : Choices(options.choices)),
      backing_(std::make_unique<FlakyBacking>(options.seed + 1, options.backing_refuses)) {
  KvCacheOptions cache_options = options.cache;
  cache_options.backing = backing_.get();
  cache_ = std::make_unique<KvCache>(cache_options);
  for (const CacheModel& model : options.models) {
    slots_.push_back(cache_->AddModel(model).value());
    store_.AddModel(slots_.back(), model, *cache_);
  }
}

RandomWalk::~RandomWalk() = default;

void RandomWalk::Run() {
  for (int step = 0; step < options_.num_steps && !random_.AtEnd(); ++step) {
    if (::testing::Test::HasFailure()) break;
    SCOPED_TRACE(absl::StrCat("step ", step));
    Step();
    if (pending_moves_.empty() || random_.Chance(0.5)) {
      PerformPendingMoves();
      PoisonUnused();
    }
    CheckEverything();
  }
  in_flight_.clear();
  while (!sequences_.empty()) Forget(sequences_.begin()->first);
  EXPECT_EQ(cache_->Stats().pages.live + cache_->Stats().pages.reserved, 0);
  EXPECT_EQ(cache_->NextExpiry(), kNever);
  for (const ModelSlot slot : slots_) EXPECT_EQ(cache_->RemoveModel(slot), absl::OkStatus());
  EXPECT_EQ(cache_->Stats().backed_bytes, 0);
  EXPECT_EQ(backing_->num_committed(), 0u);
}

void RandomWalk::Step() {
  if (sequences_.empty()) return OpenOne();
  const int64_t die = random_.Integer(0, 99);
  if (die < 8) return OpenOne();
  if (die < 38) return ExtendOne();
  if (die < 68) return SettleOne();
  if (die < 75) return ForkOne();
  if (die < 80) return ReorderSome();
  if (die < 84) return TruncateOne();
  if (die < 88) return CloseOne();
  if (die < 93) return UseOrDropOne();
  if (die < 96) return RenewOne();
  if (die < 98) return ExpireSome();
  ProbeBadIds();
}

void RandomWalk::OpenOne() {
  const ModelSlot slot = slots_[random_.Integer(0, static_cast<int64_t>(slots_.size()) - 1)];
  const OpenOptions open{
      .model = slot, .owner = AnyOwner(), .lease = random_.Integer(1, 20) * kSecond};
  const absl::StatusOr<SequenceId> id = cache_->Open(open, now_);
  if (sequences_.size() >= options_.cache.max_sequences) {
    EXPECT_EQ(ReasonOf(id.status()), Reason::kQuota);
    return Count("open QUOTA");
  }
  ASSERT_EQ(id.status(), absl::OkStatus());
  ASSERT_FALSE(sequences_.contains(*id));
  sequences_[*id] = {.owner = open.owner,
                     .layers = std::vector<PlainLayer>(store_.model(slot).num_layers)};
  PlainOwner& owner = owners_[open.owner];
  owner.lease = std::max(owner.lease, open.lease);
  owner.expires = std::max(owner.expires, now_ + owner.lease);
  if (sequences_.size() > options_.max_sequences) Forget(AnySequence());
}

void RandomWalk::ForkOne() {
  const SequenceId parent = AnySequence();
  const PlainSequence plain = sequences_[parent];
  const uint32_t committed_len = plain.CommittedLen();
  const auto at_len = static_cast<uint32_t>(
      random_.Chance(0.5) ? committed_len : random_.Integer(0, committed_len + 1));
  std::vector<SequenceId> children(random_.Integer(1, 3));
  for (SequenceId& child : children) child = cache_->NextId(SlotOf(parent));
  const absl::Status forked = cache_->Fork(parent, at_len, children);
  if (at_len > committed_len || plain.HasOpenReservation()) {
    EXPECT_EQ(ReasonOf(forked), Reason::kInvalid);
    return Count("fork INVALID");
  }
  if (sequences_.size() + children.size() > options_.cache.max_sequences) {
    EXPECT_EQ(ReasonOf(forked), Reason::kQuota);
    return Count("fork QUOTA");
  }
  ASSERT_EQ(forked, absl::OkStatus());
  Count("fork ok");
  for (const SequenceId child : children) {
    PlainSequence& copy = sequences_[child];
    copy.owner = plain.owner;
    for (const PlainLayer& layer : plain.layers) {
      copy.layers.push_back(
          {.tokens = {layer.tokens.begin(), layer.tokens.begin() + at_len}, .appends = {}});
    }
  }
  while (sequences_.size() > options_.max_sequences) Forget(AnySequence());
}

void RandomWalk::ReorderSome() {
  std::vector<SequenceId> all;
  for (const auto& [id, sequence] : sequences_) all.push_back(id);
  std::vector<SequenceId> targets = all, sources;
  random_.Shuffle(targets);
  targets.resize(random_.Integer(1, std::min<int64_t>(4, static_cast<int64_t>(all.size()))));
  bool is_valid = true;
  for (const SequenceId target : targets) {
    sources.push_back(AnySequence());
    is_valid &= SlotOf(target) == SlotOf(sources.back()) &&
                !sequences_[target].HasOpenReservation() &&
                !sequences_[sources.back()].HasOpenReservation();
  }
  const absl::Status reordered = cache_->Reorder(targets, sources);
  if (!is_valid) {
    EXPECT_EQ(ReasonOf(reordered), Reason::kInvalid);
    return Count("reorder INVALID");
  }
  ASSERT_EQ(reordered, absl::OkStatus());
  Count("reorder ok");
  const std::map<SequenceId, PlainSequence> before = sequences_;
  for (size_t i = 0; i < targets.size(); ++i) {
    sequences_[targets[i]].layers = before.at(sources[i]).layers;
    for (PlainLayer& layer : sequences_[targets[i]].layers) layer.appends.clear();
  }
}

void RandomWalk::TruncateOne() {
  const SequenceId id = AnySequence();
  PlainSequence& plain = sequences_[id];
  const auto len = static_cast<uint32_t>(random_.Integer(0, plain.LongestLen() + 1));
  const absl::StatusOr<uint32_t> committed_len = cache_->Truncate(id, len);
  if (len > plain.LongestLen() || plain.HasOpenReservation()) {
    EXPECT_EQ(ReasonOf(committed_len.status()), Reason::kInvalid);
    return Count("truncate INVALID");
  }
  ASSERT_EQ(committed_len.status(), absl::OkStatus());
  Count("truncate ok");
  for (PlainLayer& layer : plain.layers) layer.CutTo(len);
  EXPECT_EQ(*committed_len, plain.CommittedLen());
}

void RandomWalk::CloseOne() { Forget(AnySequence()); }

void RandomWalk::UseOrDropOne() {
  const SequenceId id = AnySequence();
  PlainSequence& plain = sequences_[id];
  if (plain.num_uses > 0 && random_.Chance(0.7)) {
    cache_->DropUse(id);
    --plain.num_uses;
  } else {
    cache_->AddUse(id);
    ++plain.num_uses;
  }
}

void RandomWalk::RenewOne() {
  const SequenceId id = AnySequence();
  PlainOwner& owner = owners_[sequences_[id].owner];
  if (random_.Chance(0.5)) {
    cache_->Touch(id, now_);
  } else {
    owner.lease = random_.Integer(1, 20) * kSecond;
    const KvCache::Renewal renewal = cache_->Renew(sequences_[id].owner, owner.lease, now_);
    EXPECT_EQ(renewal.num_sequences,
              std::count_if(sequences_.begin(), sequences_.end(), [&](const auto& other) {
                return other.second.owner == sequences_[id].owner;
              }));
  }
  owner.expires = std::max(owner.expires, now_ + owner.lease);
}

void RandomWalk::ExpireSome() {
  now_ += random_.Integer(0, 5) * kSecond;
  std::map<std::string, uint32_t> uses;
  for (const auto& [id, sequence] : sequences_) uses[sequence.owner] += sequence.num_uses;
  Nanos next = kNever;
  for (const auto& [name, owner] : owners_) {
    if (uses[name] == 0) next = std::min(next, owner.expires);
  }
  EXPECT_EQ(cache_->NextExpiry(), next);
  std::vector<SequenceId> expected;
  for (const auto& [id, sequence] : sequences_) {
    if (owners_[sequence.owner].expires <= now_ && uses[sequence.owner] == 0) {
      expected.push_back(id);
    }
  }
  EXPECT_EQ(cache_->Expire(now_), expected);
  if (!expected.empty()) Count("expired");
  for (const SequenceId id : expected) Forget(id);
}

void RandomWalk::ProbeBadIds() {
  if (!closed_.empty()) {
    const SequenceId id = closed_[random_.Integer(0, static_cast<int64_t>(closed_.size()) - 1)];
    EXPECT_EQ(ReasonOf(cache_->CheckOpen(id)), Reason::kStaleSequence);
    EXPECT_EQ(cache_->Close(id), absl::OkStatus());
    EXPECT_EQ(ReasonOf(cache_->Truncate(id, 0).status()), Reason::kStaleSequence);
    cache_->DropUse(id);
    cache_->Touch(id, now_);
  }
  const SequenceId unknown(random_.Next() | (uint64_t{1} << 47));
  EXPECT_EQ(ReasonOf(cache_->CheckOpen(unknown)), Reason::kUnknownSequence);
  EXPECT_EQ(ReasonOf(cache_->Close(unknown)), Reason::kUnknownSequence);
}

// ---- what all steps need

RandomWalk::Snapshot RandomWalk::SnapshotOf(SequenceId id, uint32_t layer) const {
  const uint32_t group = store_.GroupOf(SlotOf(id), layer);
  return {.pages = PagesOf(id, group),
          .stats = cache_->Stats(),
          .pool = cache_->StatsOf(SlotOf(id), group)};
}

std::vector<PageId> RandomWalk::PagesOf(SequenceId id, uint32_t group) const {
  const PageTable table = cache_->TableOf(id, group);
  std::vector<PageId> pages(table.num_pages);
  for (int32_t i = 0; i < table.num_pages; ++i) pages[i] = table[i];
  return pages;
}

bool RandomWalk::IsSeenByAnother(PageId page, SequenceId id, uint32_t group) const {
  for (const auto& [other, sequence] : sequences_) {
    if (other == id || SlotOf(other) != SlotOf(id)) continue;
    const PageTable table = cache_->TableOf(other, group);
    for (int32_t i = 0; i < table.num_pages; ++i) {
      if (table[i] == page) return true;
    }
  }
  return false;
}

PageTable RandomWalk::TableFor(SequenceId id, uint32_t layer) const {
  return cache_->TableOf(id, store_.GroupOf(SlotOf(id), layer));
}

SequenceId RandomWalk::AnySequence() {
  const int64_t index = random_.Integer(0, static_cast<int64_t>(sequences_.size()) - 1);
  return std::next(sequences_.begin(), index)->first;
}

std::string RandomWalk::AnyOwner() { return absl::StrCat("owner ", random_.Integer(0, 4)); }

// Closes it in the cache too, unless it is closed there.
void RandomWalk::Forget(SequenceId id) {
  EXPECT_EQ(cache_->Close(id), absl::OkStatus());
  const std::string owner = sequences_[id].owner;
  sequences_.erase(id);
  closed_.push_back(id);
  const bool is_last = std::none_of(sequences_.begin(), sequences_.end(),
                                    [&](const auto& other) { return other.second.owner == owner; });
  if (is_last) owners_.erase(owner);
}

void RandomWalk::PerformPendingMoves() {
  for (const PageMove& move : pending_moves_) store_.Perform(move);
  pending_moves_.clear();
}

void RandomWalk::PoisonUnused() {
  for (const ModelSlot slot : slots_) {
    const CacheModel& model = store_.model(slot);
    for (uint32_t g = 0; g < model.groups.size(); ++g) {
      ContentStore::Extents kept;
      for (const auto& [id, sequence] : sequences_) {
        if (SlotOf(id) != slot) continue;
        const std::vector<PageId> pages = PagesOf(id, g);
        for (size_t i = 0; i < pages.size(); ++i) {
          std::vector<uint32_t>& extents = kept[pages[i]];
          extents.resize(model.groups[g].layers.size());
          for (size_t l = 0; l < extents.size(); ++l) {
            const int64_t len = sequence.layers[model.groups[g].layers[l]].len();
            const int64_t held = std::clamp<int64_t>(
                len - static_cast<int64_t>(i) * model.page_size, 0, model.page_size);
            extents[l] = std::max(extents[l], static_cast<uint32_t>(held));
          }
        }
      }
      store_.PoisonAllBut(slot, g, kept);
    }
  }
}

void RandomWalk::CheckEverything() {
  ASSERT_EQ(cache_->CheckInvariants(), absl::OkStatus());
  ASSERT_EQ(cache_->Stats().num_sequences, static_cast<int64_t>(sequences_.size()));
  for (const auto& [id, sequence] : sequences_) {
    ASSERT_EQ(cache_->CommittedLengthOf(id), sequence.CommittedLen());
    ASSERT_EQ(cache_->OwnerOf(id), sequence.owner);
    for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
      const PlainLayer& layer = sequence.layers[l];
      ASSERT_EQ(cache_->LengthOf(id, l), layer.len()) << "sequence " << id.value << " layer " << l;
      if (!pending_moves_.empty()) continue;
      ASSERT_EQ(store_.Read(SlotOf(id), l, TableFor(id, l), layer.len()), layer.tokens)
          << "sequence " << id.value << " layer " << l;
    }
  }
}

}  // namespace attn::kvcache::test
