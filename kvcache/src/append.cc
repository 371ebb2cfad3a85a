// The append rule: Extend promises pages, Reservation commits or gives them back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/check.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "attn/kvcache/kv_cache.h"
#include "attn/kvcache/reservation.h"
#include "kvcache/src/cache_state.h"

namespace attn::kvcache {
namespace {

// Slots [begin, end) of one layer, in a sequence whose layer may still be longer than begin.
struct Range {
  uint32_t layer = 0;
  uint32_t group = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};

absl::Status CheckOptions(const ExtendOptions& options, const ModelPools& model) {
  if (options.layer >= model.num_layers()) {
    return MakeError(Reason::kInvalid, "layer",
                     absl::StrCat("got ", options.layer, ", want 0..", model.num_layers() - 1));
  }
  if (options.count == 0) return MakeError(Reason::kInvalid, "count", "got 0, want at least 1");
  if (options.append_token == 0) {
    return MakeError(Reason::kInvalid, "append_token", "got 0, want any other number");
  }
  return absl::OkStatus();
}

// The lines of the append rule that come after the replay.
absl::Status CheckPlace(const ExtendOptions& options, const LayerState& layer, uint32_t max_len) {
  if (layer.len != options.expected_len && !(options.rewind && layer.len > options.expected_len)) {
    return MakeError(Reason::kLengthMismatch, "expected_len",
                     absl::StrCat("got ", options.expected_len, ", want ", layer.len,
                                  ", the length of layer ", options.layer));
  }
  if (layer.reserved_end != 0) {
    return MakeError(
        Reason::kInvalid, "layer",
        absl::StrCat("got ", options.layer, ", which has an append in flight, want none"));
  }
  const uint64_t end = uint64_t{options.expected_len} + options.count;
  if (end > max_len) {
    return MakeError(
        Reason::kTooLarge, "count",
        absl::StrCat("got a length of ", end, " after the append, want at most ", max_len));
  }
  return absl::OkStatus();
}

// Makes the list of one group fit for writing one range, or changes nothing.
class PageSecurer {
 public:
  PageSecurer(Sequence& sequence, const Range& range)
      : sequence_(sequence),
        range_(range),
        model_(sequence.model()),
        pool_(model_.pool(range.group)),
        pages_(sequence.group(range.group).pages) {}

  // After success the layer ends at range.begin, the list reaches range.end and no other list sees
  // the pages to be written.
  absl::Status Secure(SlabBudget& budget, std::vector<PageMove>* moves) {
    const int64_t num_pages = model_.PagesFor(range_.end);
    const bool cuts = sequence_.layer(range_.layer).len > range_.begin;
    const int32_t num_kept = cuts ? NumPagesAfterCut() : pages_.num_pages();
    first_written_ = static_cast<int32_t>(range_.begin / model_.page_size());
    end_kept_written_ = static_cast<int32_t>(std::min<int64_t>(num_kept, num_pages));
    const int64_t num_wanted = NumSharedWritten() + std::max<int64_t>(0, num_pages - num_kept);
    const int64_t num_given_up = cuts ? NumExclusiveFrom(num_kept) : 0;
    if (num_wanted > num_given_up) {
      const absl::Status provided = budget.Provide(pool_, num_wanted - num_given_up);
      if (!provided.ok()) return CanEverFit(num_pages, budget) ? provided : TooLarge(budget);
    }
    if (cuts) {
      sequence_.CutLayer(range_.layer, range_.begin);
      sequence_.Settle(range_.group);
    }
    for (int32_t i = first_written_; i < end_kept_written_; ++i) {
      if (pages_.IsShared(i, pool_)) CopyOnWrite(i, moves);
    }
    while (pages_.num_pages() < num_pages) pages_.Append(pool_.Acquire(), pool_);
    return absl::OkStatus();
  }

 private:
  // Length of the list once the layer is cut to range.begin.
  int32_t NumPagesAfterCut() const {
    uint32_t len = range_.begin;
    for (const uint32_t l : model_.LayersOf(range_.group)) {
      const LayerState& layer = sequence_.layer(l);
      if (l != range_.layer) len = std::max({len, layer.len, layer.reserved_end});
    }
    return static_cast<int32_t>(model_.PagesFor(len));
  }

  int64_t NumSharedWritten() const {
    int64_t count = 0;
    for (int32_t i = first_written_; i < end_kept_written_; ++i) {
      count += pages_.IsShared(i, pool_);
    }
    return count;
  }

  int64_t NumExclusiveFrom(int32_t first) const {
    int64_t count = 0;
    for (int32_t i = first; i < pages_.num_pages(); ++i) count += !pages_.IsShared(i, pool_);
    return count;
  }

  void CopyOnWrite(int32_t index, std::vector<PageMove>* moves) {
    PageMove move{.model = pool_.identity().model,
                  .group = range_.group,
                  .source = pages_[index],
                  .target = pool_.Acquire(),
                  .slots_per_layer = {}};
    const uint64_t first_slot = uint64_t{static_cast<uint32_t>(index)} * model_.page_size();
    bool holds_any = false;
    for (const uint32_t l : model_.LayersOf(range_.group)) {
      const uint64_t len = sequence_.layer(l).len;
      const uint64_t slots =
          len > first_slot ? std::min<uint64_t>(len - first_slot, model_.page_size()) : 0;
      move.slots_per_layer.push_back(static_cast<uint32_t>(slots));
      holds_any |= slots > 0;
    }
    if (index < sequence_.group(range_.group).num_live) {
      pool_.SetState(move.target, PageState::kLive);
    }
    pages_.Replace(index, move.target, pool_);
    if (holds_any) moves->push_back(std::move(move));
  }

  // Whether the sequence would fit if it were alone: whole slabs for each of its groups. A longer
  // layer of this group changes nothing: what it needs is there.
  bool CanEverFit(int64_t num_pages, const SlabBudget& budget) const {
    int64_t left = budget.budget_bytes();
    for (uint32_t g = 0; g < model_.num_groups(); ++g) {
      const PagePool& pool = model_.pool(g);
      const int64_t wanted = g == range_.group ? num_pages : sequence_.NumPagesNeeded(g);
      const int64_t slabs = (wanted + pool.pages_per_slab() - 1) / pool.pages_per_slab();
      if (slabs > pool.num_slabs() || slabs * pool.slab_bytes() > left) return false;
      left -= slabs * pool.slab_bytes();
    }
    return true;
  }

  absl::Status TooLarge(const SlabBudget& budget) const {
    return MakeError(
        Reason::kTooLarge, "count",
        absl::StrCat("got a length of ", range_.end, " after the append, which does ",
                     "not fit the budget of ", budget.budget_bytes(), " bytes even alone"));
  }

  Sequence& sequence_;
  const Range range_;
  ModelPools& model_;
  PagePool& pool_;
  PageList& pages_;
  // Pages of the list, as it is after the cut, that lie in the written range.
  int32_t first_written_ = 0;
  int32_t end_kept_written_ = 0;
};

}  // namespace

absl::StatusOr<Reservation> KvCache::Extend(const ExtendOptions& options) {
  Sequence* const sequence = state_->Find(options.sequence);
  if (sequence == nullptr) return state_->WhyNotOpen(options.sequence, "sequence_id");
  ATTN_RETURN_IF_ERROR(CheckOptions(options, sequence->model()));
  LayerState& layer = sequence->layer(options.layer);
  Reservation reservation;
  reservation.sequence_ = options.sequence;
  reservation.layer_ = options.layer;
  reservation.begin_ = options.expected_len;
  reservation.append_token_ = options.append_token;
  const RememberedAppend* const remembered =
      layer.appends.Find(options.expected_len, options.append_token);
  if (remembered != nullptr) {
    if (remembered->count != options.count) {
      return MakeError(Reason::kInvalid, "count",
                       absl::StrCat("got ", options.count, ", want ", remembered->count,
                                    " as when this append token was used first"));
    }
    reservation.end_ = options.expected_len + options.count;
    reservation.replayed_ = true;
    return reservation;
  }
  ATTN_RETURN_IF_ERROR(CheckPlace(options, layer, state_->options.max_sequence_len));
  reservation.end_ = options.expected_len + options.count;
  PageSecurer securer(*sequence, {.layer = options.layer,
                                  .group = sequence->model().GroupOf(options.layer),
                                  .begin = reservation.begin_,
                                  .end = reservation.end_});
  ATTN_RETURN_IF_ERROR(securer.Secure(state_->budget, &reservation.moves_));
  layer.reserved_end = reservation.end_;
  reservation.cache_ = this;
  return reservation;
}

Reservation::Reservation(Reservation&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      sequence_(other.sequence_),
      layer_(other.layer_),
      begin_(other.begin_),
      end_(other.end_),
      append_token_(other.append_token_),
      replayed_(other.replayed_),
      moves_(std::move(other.moves_)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Reservation taken(std::move(other));
  std::swap(cache_, taken.cache_);
  std::swap(sequence_, taken.sequence_);
  std::swap(layer_, taken.layer_);
  std::swap(begin_, taken.begin_);
  std::swap(end_, taken.end_);
  std::swap(append_token_, taken.append_token_);
  std::swap(replayed_, taken.replayed_);
  moves_.swap(taken.moves_);
  return *this;  // what was held before rolls back here
}

Reservation::~Reservation() {
  if (cache_ == nullptr) return;
  // A sequence that was closed meanwhile has given back everything.
  Sequence* const sequence = cache_->state_->Find(sequence_);
  if (sequence == nullptr) return;
  sequence->layer(layer_).reserved_end = 0;
  sequence->Settle(sequence->model().GroupOf(layer_));
}

void Reservation::Commit() {
  if (cache_ == nullptr) return;
  const KvCache::State& state = *std::exchange(cache_, nullptr)->state_;
  Sequence* const sequence = state.Find(sequence_);
  if (sequence == nullptr) return;
  LayerState& layer = sequence->layer(layer_);
  ATTN_CHECK(layer.len == begin_ && layer.reserved_end == end_, "layer ends at ", layer.len,
             ", reserved up to ", layer.reserved_end, ", append of [", begin_, ", ", end_, ")");
  layer.len = end_;
  layer.reserved_end = 0;
  layer.appends.Add({.token = append_token_, .begin = begin_, .count = end_ - begin_},
                    state.options.remembered_appends);
  sequence->GrowLive(sequence->model().GroupOf(layer_), end_);
}

}  // namespace attn::kvcache
