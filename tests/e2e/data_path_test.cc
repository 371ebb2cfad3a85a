// Append and attend through a real server, beside plain attention in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/e2e/test_server.h"

namespace attn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

uint64_t FreshSeed() {
  const uint64_t seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

std::vector<float> Rest(const std::vector<float>& values, size_t from) {
  return {values.begin() + static_cast<int64_t>(from), values.end()};
}

TEST(DataPathTest, ManySequencesLayersAndLengthsAgreeWithPlainAttention) {
  TestServer server;
  const uint64_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  Random random(seed);
  constexpr int kSequences = 3;
  const std::vector<uint64_t> ids = server.Open(kSequences);
  PlainLayer kv[kSequences][kLayers];
  for (int round = 0; round < 6; ++round) {
    std::vector<Step> steps;
    Rows want;
    std::vector<float> want_lse;
    std::vector<uint32_t> want_lens;
    for (int s = 0; s < kSequences; ++s) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        PlainLayer& cache = kv[s][layer];
        const int64_t before = cache.len();
        const int64_t count = random.OneOf({1, 2, 17, 40});
        steps.push_back(AppendStep(random, ids[s], layer, count, &cache));
        const Rows out =
            PlainAttend(cache, steps.back().q,
                        {.layer = layer, .q_start = before, .kv_end = cache.len()}, &want_lse);
        want.insert(want.end(), out.begin(), out.end());
        want_lens.push_back(static_cast<uint32_t>(cache.len()));
      }
    }
    const v1::AttendResponse response = server.Attend(MakeRequest(steps, true));
    EXPECT_THAT(response.item_reasons(), IsEmpty()) << response.errors(0).ShortDebugString();
    ExpectNear(Floats(response.out()), want);
    ExpectNear(Floats(response.lse()), want_lse);
    EXPECT_THAT(response.new_lens(), ::testing::ElementsAreArray(want_lens));
  }
  server.Close(ids);
  EXPECT_TRUE(server.PagesComeBackWithin(std::chrono::seconds(2)));
}

TEST(DataPathTest, FlagsAndPositionsMeanWhatTheyMean) {
  TestServer server;
  Random random(7);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  server.Attend(MakeRequest({AppendStep(random, id, 0, 20, &kv)}));
  Step read{.sequence = id, .q = RandomRows(random, 3, kQHeads)};

  v1::AttendRequest request = MakeRequest({read});
  ExpectNear(Floats(server.Attend(request).out()),
             PlainAttend(kv, read.q, {.q_start = 17, .kv_end = 20}));
  request.add_q_starts(4);
  ExpectNear(Floats(server.Attend(request).out()),
             PlainAttend(kv, read.q, {.q_start = 4, .kv_end = 20}));
  request.set_flags(0, v1::ITEM_FLAG_NON_CAUSAL);
  ExpectNear(Floats(server.Attend(request).out()),
             PlainAttend(kv, read.q, {.q_start = 4, .kv_end = 20, .causal = false}));

  PlainLayer before = kv;
  Step after = AppendStep(random, id, 0, 2, &kv);
  after.flags = v1::ITEM_FLAG_APPEND_AFTER;
  const v1::AttendResponse response = server.Attend(MakeRequest({after}));
  EXPECT_THAT(response.new_lens(), ElementsAre(22));
  ExpectNear(Floats(response.out()), PlainAttend(before, after.q, {.q_start = 20, .kv_end = 20}));
}

TEST(DataPathTest, SinksCanBeLeftOut) {
  TestServer server;
  Random random(8);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  Step step = AppendStep(random, id, 1, 9, &kv);
  step.flags = v1::ITEM_FLAG_NO_SINK_LOGITS;
  const v1::AttendResponse response = server.Attend(MakeRequest({step}, true));
  std::vector<float> lse;
  const Rows want = PlainAttend(kv, step.q, {.layer = 1, .kv_end = 9, .sinks = false}, &lse);
  ExpectNear(Floats(response.out()), want);
  ExpectNear(Floats(response.lse()), lse);
}

TEST(DataPathTest, AnItemMayOnlyAppend) {
  TestServer server;
  Random random(9);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  Step step = AppendStep(random, id, 0, 5, &kv);
  step.q.clear();
  const v1::AttendResponse response = server.Attend(MakeRequest({step}));
  EXPECT_THAT(response.new_lens(), ElementsAre(5));
  EXPECT_FALSE(response.has_out());
  const Step read{.sequence = id, .q = RandomRows(random, 1, kQHeads)};
  ExpectNear(Floats(server.Attend(MakeRequest({read})).out()),
             PlainAttend(kv, read.q, {.q_start = 4, .kv_end = 5}));
}

TEST(DataPathTest, ReducedPrecisionOutputIsTheRoundedOne) {
  TestServer server;
  Random random(10);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  const Step step = AppendStep(random, id, 0, 4, &kv);
  v1::AttendRequest request = MakeRequest({step});
  request.set_out_dtype(v1::DATA_TYPE_BFLOAT16);
  const v1::AttendResponse response = server.Attend(request);
  EXPECT_EQ(response.out().dtype(), v1::DATA_TYPE_BFLOAT16);
  const Rows want = PlainAttend(kv, step.q, {.kv_end = 4});
  ASSERT_EQ(response.out().raw().size(), want.size() * 2);
  for (size_t i = 0; i < want.size(); ++i) {
    const float got =
        LoadAsFloat(DType::kBFloat16, response.out().raw().data(), static_cast<int64_t>(i));
    EXPECT_NEAR(got, want[i], 0.01 * (1 + std::abs(want[i])));
  }
}

TEST(DataPathTest, APoisonedSequenceNeverTouchesAnother) {
  TestServer server;
  Random random(11);
  const std::vector<uint64_t> ids = server.Open(2);
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    PlainLayer bad, good;
    bad.Truncate(0);
    const uint32_t len = server.Describe(ids[0]).layer_lens(0);
    Step poisoned = AppendStep(random, ids[0], 0, 3, &bad);
    poisoned.expected_len = len;
    std::fill(poisoned.q.begin(), poisoned.q.end(), poison);
    std::fill(poisoned.k.begin(), poisoned.k.end(), poison);
    std::fill(poisoned.v.begin(), poisoned.v.end(), poison);
    Step clean = AppendStep(random, ids[1], 0, 3, &good);
    clean.flags = v1::ITEM_FLAG_REWIND;
    const v1::AttendResponse response = server.Attend(MakeRequest({poisoned, clean}));
    ASSERT_THAT(response.errors(), SizeIs(0));
    const std::vector<float> out = Floats(response.out());
    ExpectNear(Rest(out, poisoned.q.size()), PlainAttend(good, clean.q, {.kv_end = 3}));
  }
}

// ------------------------------------------------------------------------------- the append rule

TEST(DataPathTest, ARepeatedAppendIsComputedAgainAndNotAppendedAgain) {
  TestServer server;
  Random random(12);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  server.Attend(MakeRequest({AppendStep(random, id, 0, 4, &kv)}));
  const v1::AttendRequest request = MakeRequest({AppendStep(random, id, 0, 2, &kv)});
  const v1::AttendResponse first = server.Attend(request);
  // The answer was lost; the next append has been made meanwhile.
  server.Attend(MakeRequest({AppendStep(random, id, 0, 1, &kv)}));
  const v1::AttendResponse again = server.Attend(request);
  EXPECT_THAT(again.item_replayed(), ElementsAre(true));
  EXPECT_EQ(again.out().raw(), first.out().raw());
  EXPECT_THAT(again.new_lens(), ElementsAre(7));
  v1::AttendRequest stranger = request;
  stranger.set_append_tokens(0, 999);
  const v1::AttendResponse refused = server.Attend(stranger);
  EXPECT_THAT(refused.item_reasons(), ElementsAre(v1::REASON_LENGTH_MISMATCH));
  EXPECT_THAT(refused.new_lens(), ElementsAre(7));
  for (const float value : Floats(refused.out())) EXPECT_TRUE(std::isnan(value));
}

TEST(DataPathTest, EverySeventhAnswerLostAndRetriedLosesAndDoublesNothing) {
  TestServer server;
  Random random(13);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  for (int i = 0; i < 50; ++i) {
    const int64_t before = kv.len();
    const Step step = AppendStep(random, id, 0, 1, &kv);
    v1::AttendResponse response = server.Attend(MakeRequest({step}));
    if (i % 7 == 6) response = server.Attend(MakeRequest({step}));
    ASSERT_EQ(response.item_replayed_size(), i % 7 == 6 ? 1 : 0);
    ASSERT_THAT(response.new_lens(), ElementsAre(before + 1));
    ExpectNear(Floats(response.out()),
               PlainAttend(kv, step.q, {.q_start = before, .kv_end = before + 1}));
  }
}

TEST(DataPathTest, RewindCutsTheRejectedDraft) {
  TestServer server;
  Random random(14);
  const uint64_t id = server.OpenOne();
  PlainLayer kv;
  server.Attend(MakeRequest({AppendStep(random, id, 0, 30, &kv)}));
  kv.Truncate(18);
  Step step = AppendStep(random, id, 0, 2, &kv);
  EXPECT_THAT(server.Attend(MakeRequest({step})).item_reasons(),
              ElementsAre(v1::REASON_LENGTH_MISMATCH));
  step.flags = v1::ITEM_FLAG_REWIND;
  const v1::AttendResponse response = server.Attend(MakeRequest({step}));
  EXPECT_THAT(response.new_lens(), ElementsAre(20));
  ExpectNear(Floats(response.out()), PlainAttend(kv, step.q, {.q_start = 18, .kv_end = 20}));
}

}  // namespace
}  // namespace attn::test
