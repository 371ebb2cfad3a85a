#include "kvcache/src/sequence.h"

#include <algorithm>
#include <utility>

namespace attn::kvcache {

Sequence::Sequence(SequenceId id, ModelPools* model, Owner* owner)
    : id_(id),
      model_(model),
      owner_(owner),
      layers_(model->num_layers()),
      groups_(model->num_groups()) {
  ++model_->num_sequences;
}

Sequence::~Sequence() {
  for (uint32_t g = 0; g < groups_.size(); ++g) groups_[g].pages.Trim(0, model_->pool(g));
  --model_->num_sequences;
}

uint32_t Sequence::CommittedLen() const {
  uint32_t len = layers_[0].len;
  for (const LayerState& layer : layers_) len = std::min(len, layer.len);
  return len;
}

uint32_t Sequence::LongestLen() const {
  uint32_t len = 0;
  for (const LayerState& layer : layers_) len = std::max(len, layer.len);
  return len;
}

bool Sequence::HasOpenReservation() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const LayerState& layer) { return layer.reserved_end != 0; });
}

int64_t Sequence::NumPagesForLens(uint32_t group) const {
  uint32_t len = 0;
  for (const uint32_t l : model_->LayersOf(group)) len = std::max(len, layers_[l].len);
  return model_->PagesFor(len);
}

int64_t Sequence::NumPagesNeeded(uint32_t group) const {
  uint32_t len = 0;
  for (const uint32_t l : model_->LayersOf(group)) {
    len = std::max({len, layers_[l].len, layers_[l].reserved_end});
  }
  return model_->PagesFor(len);
}

void Sequence::CutLayer(uint32_t layer, uint32_t len) {
  if (layers_[layer].len <= len) return;
  layers_[layer].len = len;
  layers_[layer].appends.CutTo(len);
}

void Sequence::Settle(uint32_t group) {
  GroupState& state = groups_[group];
  PagePool& pool = model_->pool(group);
  // Lengths never need more pages than the list has, so both fit its index.
  const auto num_live = static_cast<int32_t>(NumPagesForLens(group));
  state.pages.Trim(static_cast<int32_t>(NumPagesNeeded(group)), pool);
  const int32_t old_live = std::min(state.num_live, state.pages.num_pages());
  for (int32_t i = num_live; i < old_live; ++i) {
    pool.SetState(state.pages[i], PageState::kReserved);
  }
  for (int32_t i = old_live; i < num_live; ++i) pool.SetState(state.pages[i], PageState::kLive);
  state.num_live = num_live;
}

void Sequence::GrowLive(uint32_t group, uint32_t len) {
  GroupState& state = groups_[group];
  const auto num_live = static_cast<int32_t>(model_->PagesFor(len));
  for (; state.num_live < num_live; ++state.num_live) {
    model_->pool(group).SetState(state.pages[state.num_live], PageState::kLive);
  }
}

void Sequence::CopyPrefix(const Sequence& source, uint32_t at_len) {
  for (LayerState& layer : layers_) layer.len = at_len;
  const auto num_pages = static_cast<int32_t>(model_->PagesFor(at_len));
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    PageList shared = source.groups_[g].pages.Share(num_pages, model_->pool(g));
    groups_[g].pages.Swap(shared);
    groups_[g].num_live = num_pages;
  }
}

void Sequence::CopyWhole(const Sequence& source) {
  for (uint32_t l = 0; l < layers_.size(); ++l) layers_[l].len = source.layers_[l].len;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const GroupState& from = source.groups_[g];
    PageList shared = from.pages.Share(from.pages.num_pages(), model_->pool(g));
    groups_[g].pages.Swap(shared);
    groups_[g].num_live = from.num_live;
  }
}

void Sequence::SwapContent(Sequence& copy) {
  layers_.swap(copy.layers_);
  groups_.swap(copy.groups_);
}

}  // namespace attn::kvcache
