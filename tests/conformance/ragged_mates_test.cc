// One decode item and one prefill item are launched again and again, each time among other mates
// of other lengths at other places of the batch: their bits must never change.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/paged_memory.h"
#include "tests/support/random.h"
#include "tests/support/tested_backend.h"

namespace attn::test {
namespace {

constexpr int kNumSequences = 6;
constexpr int32_t kMaxKeys = 2600;
constexpr int32_t kMaxRows = 70;
constexpr int kMaxMates = 10;

struct Sequence {
  PageIds pages;
  int32_t len;
};

// Query rows over one sequence with memory for their results.
struct Rows {
  int32_t sequence = 0;
  int32_t q_len = 0;
  int32_t kv_end = 0;
  std::vector<char> q;
  std::vector<char> out;
  std::vector<float> lse;
};

class RaggedMatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    memory_ = std::make_unique<PagedMemory>(
        PagedMemory::Create(backend(), spec_, kNumSequences * PagesOf(kMaxKeys) + 5, seed_)
            .value());
    for (int i = 0; i < kNumSequences; ++i) AddSequence();
  }

  Backend& backend() { return *TestedBackends()[1]; }
  int32_t PagesOf(int32_t tokens) const {
    return (tokens + static_cast<int32_t>(spec_.page_size) - 1) /
           static_cast<int32_t>(spec_.page_size);
  }
  int32_t RandomInt(int32_t low, int32_t high) {
    return static_cast<int32_t>(random_.Integer(low, high));
  }

  void AddSequence() {
    const int32_t len = sequences_.empty() ? kMaxKeys : RandomInt(1, kMaxKeys);
    sequences_.push_back({PageIds(memory_->TakeFor(len), 9), len});
    const size_t elements = static_cast<size_t>(len) * spec_.num_kv_heads;
    const std::vector<char> k =
        NormalTensor(spec_.activation_dtype, elements * spec_.head_dim_qk, random_.Next());
    const std::vector<char> v =
        NormalTensor(spec_.activation_dtype, elements * spec_.head_dim_v, random_.Next());
    Batch batch;
    batch.appends.push_back({.k = k.data(),
                             .v = v.data(),
                             .pages = sequences_.back().pages.view(),
                             .count = static_cast<uint32_t>(len)});
    ASSERT_TRUE(Execute(backend(), memory_->store(), batch).ok());
  }

  Rows MakeRows(int32_t sequence, int32_t q_len, int32_t kv_end) {
    Rows rows{sequence, q_len, kv_end, {}, {}, {}};
    const size_t heads = static_cast<size_t>(q_len) * spec_.num_q_heads;
    rows.q = NormalTensor(spec_.activation_dtype, heads * spec_.head_dim_qk, random_.Next());
    rows.out.resize(heads * spec_.head_dim_v * SizeOf(spec_.activation_dtype));
    rows.lse.resize(heads);
    return rows;
  }

  AttendEntry EntryOf(Rows& rows) const {
    std::fill(rows.out.begin(), rows.out.end(), static_cast<char>(0xff));
    AttendEntry entry;
    entry.q = rows.q.data();
    entry.out = rows.out.data();
    entry.lse = rows.lse.data();
    entry.pages = sequences_[static_cast<size_t>(rows.sequence)].pages.view();
    entry.q_start = int64_t{rows.kv_end} - rows.q_len;
    entry.q_len = rows.q_len;
    entry.kv_end = rows.kv_end;
    entry.kv_head_end = spec_.num_kv_heads;
    entry.out_dtype = spec_.activation_dtype;
    entry.row_class = ClassOf(static_cast<uint32_t>(rows.q_len));
    return entry;
  }

  void Launch(const std::vector<Rows*>& all) {
    Batch batch;
    for (Rows* rows : all) batch.rows.push_back(EntryOf(*rows));
    const absl::Status done = Execute(backend(), memory_->store(), batch);
    ASSERT_TRUE(done.ok()) << done;
  }

  const AttentionSpec spec_ = NarrowedSpec(8, 2, 64);
  const uint64_t seed_ = std::random_device()();
  Random random_{seed_};
  std::unique_ptr<PagedMemory> memory_;
  std::vector<Sequence> sequences_;
};

TEST_F(RaggedMatesTest, ChangingMatesNeverChangeABit) {
  Rows decode = MakeRows(0, 1, kMaxKeys - 7);
  Rows prefill = MakeRows(0, 40, 700);
  Launch({&decode, &prefill});
  const Rows decode_alone = decode;
  const Rows prefill_alone = prefill;
  std::vector<Rows> mates;
  for (int i = 0; i < 4 * kMaxMates; ++i) {
    const int32_t sequence = RandomInt(0, kNumSequences - 1);
    const int32_t len = sequences_[static_cast<size_t>(sequence)].len;
    mates.push_back(MakeRows(sequence,
                             random_.Chance(0.6) ? RandomInt(1, 16) : RandomInt(17, kMaxRows),
                             RandomInt(0, len)));
  }
  for (int repeat = 0; repeat < TestedRepeats(); ++repeat) {
    std::vector<Rows*> all;
    for (Rows& rows : mates) all.push_back(&rows);
    random_.Shuffle(all);
    all.resize(static_cast<size_t>(RandomInt(0, kMaxMates)));
    all.insert(all.end(), {&decode, &prefill});
    random_.Shuffle(all);
    Launch(all);
    ASSERT_EQ(decode.out, decode_alone.out) << "repeat " << repeat << " seed " << seed_;
    ASSERT_EQ(decode.lse, decode_alone.lse) << "repeat " << repeat << " seed " << seed_;
    ASSERT_EQ(prefill.out, prefill_alone.out) << "repeat " << repeat << " seed " << seed_;
    ASSERT_EQ(prefill.lse, prefill_alone.lse) << "repeat " << repeat << " seed " << seed_;
  }
}

}  // namespace
}  // namespace attn::test
