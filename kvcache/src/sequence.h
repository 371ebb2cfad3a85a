// One sequence: a length per layer, a page list per group, and the rule that ties them together.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/base/ids.h"
#include "attn/kvcache/page_move.h"
#include "kvcache/src/lease_table.h"
#include "kvcache/src/model_pools.h"
#include "kvcache/src/page_list.h"
#include "kvcache/src/remembered_appends.h"

namespace attn::kvcache {

struct LayerState {
  uint32_t len = 0;
  uint32_t reserved_end = 0;  // where an open reservation ends; 0: none is open
  RememberedAppends appends;
};

// Between calls: num_live pages hold tokens below the largest length of the group's layers, and the
// list is as long as the largest length or reservation end needs. Pages from num_live on are
// reserved, and no other list sees them: they lie in the range of an open reservation, and while
// one is open the sequence is not copied.
struct GroupState {
  PageList pages;
  int32_t num_live = 0;
};

class Sequence {
 public:
  Sequence(SequenceId id, ModelPools* model, Owner* owner);
  ~Sequence();  // lets all pages go
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  SequenceId id() const { return id_; }
  ModelPools& model() const { return *model_; }
  Owner* owner() const { return owner_; }
  // REQUIRES: layer < num_layers, group < num_groups.
  LayerState& layer(uint32_t layer) { return layers_[layer]; }
  const LayerState& layer(uint32_t layer) const { return layers_[layer]; }
  GroupState& group(uint32_t group) { return groups_[group]; }
  const GroupState& group(uint32_t group) const { return groups_[group]; }

  uint32_t CommittedLen() const;
  uint32_t LongestLen() const;
  bool HasOpenReservation() const;

  // Pages that the list of `group` must have: for lengths, and for reservations too.
  int64_t NumPagesForLens(uint32_t group) const;
  int64_t NumPagesNeeded(uint32_t group) const;

  // Sets the layer's length, or a smaller one, and forgets appends that end above it. The group's
  // list still is as long as it was, see Settle.
  void CutLayer(uint32_t layer, uint32_t len);
  // Trims the list of `group` to what is needed and marks its pages live or reserved.
  void Settle(uint32_t group);
  // As Settle, after a layer has grown to `len` within the list as it is.
  void GrowLive(uint32_t group, uint32_t len);

  // Becomes the first at_len tokens of `source`, which has the same model, sharing its pages.
  // REQUIRES: no open reservation here or there, at_len <= source's committed length, no pages.
  void CopyPrefix(const Sequence& source, uint32_t at_len);
  // Takes the lengths and pages of a copy, and gives it its own. REQUIRES: as above.
  void SwapContent(Sequence& copy);
  // Becomes the whole of `source`, every layer at its own length. REQUIRES: as for CopyPrefix.
  void CopyWhole(const Sequence& source);

  uint64_t num_uses = 0;  // see KvCache::AddUse

 private:
  const SequenceId id_;
  ModelPools* const model_;
  Owner* const owner_;
  std::vector<LayerState> layers_;
  std::vector<GroupState> groups_;
};

}  // namespace attn::kvcache
