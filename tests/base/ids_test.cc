// Do sequence ids keep the model's slot and the counter apart, and stay clear of stream aliases?
#include "attn/base/ids.h"

#include <cstdint>
#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace attn {
namespace {

TEST(IdsTest, SlotAndCounterComeBackFromASequenceId) {
  const uint64_t last_counter = (uint64_t{1} << kSequenceCounterBits) - 1;
  for (const uint16_t slot : {uint16_t{1}, uint16_t{2}, uint16_t{0x8000}, uint16_t{0xffff}}) {
    for (const uint64_t counter : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, last_counter}) {
      const SequenceId id = MakeSequenceId(ModelSlot(slot), counter);
      EXPECT_EQ(SlotOf(id), ModelSlot(slot));
      EXPECT_EQ(CounterOf(id), counter);
    }
  }
}

TEST(IdsTest, EverySequenceIdIsAboveEveryAlias) {
  EXPECT_EQ(MakeSequenceId(ModelSlot(1), 0).value, uint64_t{1} << 48);
}

TEST(IdsTest, IdsOfDifferentKindsDoNotConvert) {
  static_assert(!std::is_convertible_v<uint64_t, SequenceId>);
  static_assert(!std::is_convertible_v<SequenceId, uint64_t>);
  static_assert(!std::is_convertible_v<ModelSlot, SequenceId>);
  EXPECT_LT(SequenceId(1), SequenceId(2));
}

TEST(IdsTest, IdsHashByValue) {
  absl::flat_hash_set<SequenceId> ids = {SequenceId(1), SequenceId(2), SequenceId(1)};
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_TRUE(ids.contains(SequenceId(2)));
}

}  // namespace
}  // namespace attn
