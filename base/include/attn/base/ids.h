// Ids as types of their own, so that a layer cannot be passed where a page is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace attn {

// An integer with a name. Tag keeps the instances apart.
template <typename Tag, typename Int>
struct StrongId {
  using Rep = Int;

  Int value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value);
  }
};

// A sequence of the server: the model's slot in the top 16 bits (1 and up), a counter below that
// is never used twice. So an id is at least 2^48, and smaller numbers are free for stream aliases.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;

// A model's place in the server, 1 and up.
using ModelSlot = StrongId<struct ModelSlotTag, uint16_t>;

// A page of one layer group's pool. Plain, because kernels read arrays of it.
using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

inline constexpr int kSequenceCounterBits = 48;

constexpr SequenceId MakeSequenceId(ModelSlot slot, uint64_t counter) {
  return SequenceId((uint64_t{slot.value} << kSequenceCounterBits) | counter);
}
constexpr ModelSlot SlotOf(SequenceId id) {
  return ModelSlot(static_cast<uint16_t>(id.value >> kSequenceCounterBits));
}
constexpr uint64_t CounterOf(SequenceId id) {
  return id.value & ((uint64_t{1} << kSequenceCounterBits) - 1);
}

}  // namespace attn
