// What a call is expected to cost before it is accepted, and what follows from it.
#include "server/core/attend_time.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "attn/base/error.h"
#include "tests/server/engine_fixture.h"

namespace attn::server {
namespace {

using Item = EngineFixture::Item;

class AttendTimeTest : public ::testing::Test {
 protected:
  // Costs of the fixture's one group, rates as at the start.
  CallTime TimeOfItems(const std::vector<Item>& items) {
    return TimeOf(std::get<AttendCall>(fixture_.Attend(items)->request), costs_);
  }
  // By the backend's own statement: `rows` rows of which the last sees `keys` keys.
  Nanos RowsTime(UnitKind kind, uint32_t rows, uint32_t keys) {
    AttendEntry entry;
    entry.q_start = int64_t{keys} - rows;
    entry.q_len = static_cast<int32_t>(rows);
    entry.kv_end = static_cast<int32_t>(keys);
    entry.kv_head_end = spec().num_kv_heads;
    return costs_.NanosOf(kind, costs_.UnitsOf(spec(), entry));
  }
  Nanos KeysTime(UnitKind kind, uint32_t count) {
    return costs_.NanosOf(kind, costs_.AppendUnitsOf(spec(), count));
  }
  const AttentionSpec& spec() const { return fixture_.model->definition.groups[0].spec; }

  EngineFixture fixture_;
  std::unique_ptr<Backend> backend_ = test::CreateFakeBackend(std::make_shared<test::FakeDevice>());
  CostModel costs_{backend_.get()};
};

TEST_F(AttendTimeTest, DecodeAndBulkAreToldApartAsTheBatcherDoes) {
  const CallTime decode = TimeOfItems({{.expected_len = 999, .tokens = {1}, .q_len = 1}});
  EXPECT_NEAR(
      static_cast<double>(decode.decode),
      static_cast<double>(RowsTime(UnitKind::kDecode, 1, 1000) + KeysTime(UnitKind::kDecode, 1)),
      2);
  EXPECT_GT(decode.decode, 0);
  EXPECT_EQ(decode.bulk, 0);
  const std::vector<int> tokens(40, 3);
  const CallTime prefill = TimeOfItems({{.expected_len = 500, .tokens = tokens, .q_len = 40}});
  EXPECT_NEAR(
      static_cast<double>(prefill.bulk),
      static_cast<double>(RowsTime(UnitKind::kPrefill, 40, 540) + KeysTime(UnitKind::kAppend, 40)),
      2);
  EXPECT_EQ(prefill.decode, 0);
  const CallTime append = TimeOfItems({{.expected_len = 500, .tokens = tokens, .q_len = 0}});
  EXPECT_NEAR(static_cast<double>(append.bulk),
              static_cast<double>(KeysTime(UnitKind::kAppend, 40)), 2);
}

TEST_F(AttendTimeTest, ItemsAddUpAndRefusedOnesTakeNoTime) {
  const Item decode = {.expected_len = 999, .tokens = {1}, .q_len = 1};
  const Item prefill = {.layer = 1, .tokens = std::vector<int>(64, 2), .q_len = 64};
  const CallTime both = TimeOfItems({decode, prefill});
  EXPECT_EQ(both.decode, TimeOfItems({decode}).decode);
  EXPECT_EQ(both.bulk, TimeOfItems({prefill}).bulk);
  const auto call = fixture_.Attend({decode, prefill});
  auto& items = std::get<AttendCall>(call->request).items;
  items[0].refused = MakeError(Reason::kInvalid, "layers[0]", "refused");
  items[1].model = nullptr;
  EXPECT_EQ(TimeOf(std::get<AttendCall>(call->request), costs_).total(), 0);
}

TEST_F(AttendTimeTest, TheEngineRefusesWhatAcceptedWorkWouldMakeLate) {
  const auto submit = [&](uint64_t sequence, size_t num_tokens, Nanos time_limit) {
    auto call = fixture_.Attend({{.seq = sequence,
                                  .tokens = std::vector<int>(num_tokens, 1),
                                  .q_len = static_cast<uint32_t>(num_tokens)}});
    call->arrival = fixture_.clock.Now();
    call->deadline = call->arrival + time_limit;
    return fixture_.engine->Submit(std::move(call));
  };
  const Nanos alone = TimeOfItems({{.tokens = std::vector<int>(2000, 1), .q_len = 2000}}).total();
  ASSERT_GT(alone, 2 * kMillisecond) << "else waits are too short to tell";
  const uint64_t first = fixture_.Open();
  const uint64_t second = fixture_.Open();
  EXPECT_TRUE(submit(first, 2000, alone / 2).ok()) << "nothing is ahead of it";
  EXPECT_EQ(ReasonOf(submit(second, 1900, alone)), Reason::kQueueFull);
  EXPECT_TRUE(submit(second, 20, alone).ok()) << "overtakes";
  fixture_.Drain();
  EXPECT_TRUE(submit(fixture_.Open(), 1900, alone).ok()) << "answered work is not ahead any more";
}

}  // namespace
}  // namespace attn::server
