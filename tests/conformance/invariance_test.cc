// The bits of a row depend on its position, its item's key range, inputs, spec, flags and class,
// and on nothing else: not on mates, places, pages, cuts, threads or staging. Everything here
// compares bytes.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_run.h"
#include "tests/support/tested_backend.h"

namespace attn::test {
namespace {

// One spec with items of both classes, long enough for several key tiles.
struct Scenario {
  const char* name;
  AttentionCase base;
};

AttentionCase WithItems(const AttentionSpec& spec, uint64_t seed) {
  AttentionCase base = BottomRightCase(
      spec, {{1, 1000}, {1, 16}, {7, 777}, {16, 530}, {17, 257}, {100, 612}, {70, 70}}, seed);
  base.items[5].q_start -= 9;   // some keys after the last row
  base.items[6].q_start = -13;  // rows before the first key
  base.items[2].causal = false;
  base.items[5].out_dtype = DType::kBFloat16;
  return base;
}

std::vector<Scenario> Scenarios() {
  AttentionSpec plain = NarrowedSpec(8, 2, 64);
  AttentionSpec windowed = NarrowedSpec(6, 2, 80, DType::kBFloat16);
  windowed.score.window.left = 127;
  windowed.score.window.right = 0;
  AttentionSpec capped = SpecOf(4, 4, 40, DType::kFloat16);
  capped.head_dim_v = 72;
  Narrow(capped);
  capped.score.logit_soft_cap = 3.0f;
  capped.score.sink_logits_per_head = 2;
  AttentionSpec mixed = SpecOf(7, 1, 32);
  mixed.kv_dtype = DType::kFloat16;
  Narrow(mixed);
  return {{"plain", WithItems(plain, 11)},
          {"windowed", WithItems(windowed, 12)},
          {"capped with sinks", WithItems(capped, 13)},
          {"one KV head", WithItems(mixed, 14)}};
}

// On one of the tested backends, counted round.
std::vector<ItemOutput> MustRun(size_t backend, const Problem& problem, const Layout& layout) {
  const std::vector<Backend*>& backends = TestedBackends();
  auto outputs = RunOnBackend(*backends[backend % backends.size()], problem, layout);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<ItemOutput>(problem.items.size());
}

Problem OnlyItem(const Problem& problem, size_t item) {
  return {problem.spec, {problem.items[item]}, {problem.tensors[item]}};
}

// Each item's output when it runs alone on the first backend, uncut.
std::vector<ItemOutput> Alone(const Problem& problem) {
  std::vector<ItemOutput> outputs;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    outputs.push_back(MustRun(0, OnlyItem(problem, i), {}).front());
  }
  return outputs;
}

void ExpectSameBits(const std::vector<ItemOutput>& got, const std::vector<ItemOutput>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == want[i]) << "item " << i;
}

class InvarianceTest : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override { alone_ = Alone(problem_); }

  const Problem problem_ = MakeProblem(GetParam().base);
  std::vector<ItemOutput> alone_;
};

TEST_P(InvarianceTest, MatesAndBatchPositionChangeNoBit) {
  ExpectSameBits(MustRun(0, problem_, {}), alone_);
  ExpectSameBits(MustRun(0, problem_, {.reversed = true}), alone_);
}

TEST_P(InvarianceTest, MatesOfAnyLengthChangeNoBit) {
  // vllm-project/vllm #51902, flashinfer-ai/flashinfer #2424: tile shape by the longest mate.
  for (const int32_t mate_rows : {1, 9, 10, 64, 65, 129}) {
    AttentionCase with_mate = GetParam().base;
    with_mate.items.resize(1);
    with_mate.items.push_back(
        {.q_len = mate_rows, .kv_len = mate_rows + 300, .q_start = 300, .layer = 0});
    const Problem mated = MakeProblem(with_mate);
    ASSERT_EQ(mated.tensors[0].q, problem_.tensors[0].q);
    EXPECT_TRUE(MustRun(1, mated, {})[0] == alone_[0]) << mate_rows << " rows";
  }
}

TEST_P(InvarianceTest, ThreadsAndStagingChangeNoBit) {
  for (size_t backend = 1; backend < TestedBackends().size(); ++backend) {
    SCOPED_TRACE(backend);
    ExpectSameBits(MustRun(backend, problem_, {}), alone_);
    for (size_t i = 0; i < problem_.items.size(); ++i) {
      EXPECT_TRUE(MustRun(backend, OnlyItem(problem_, i), {}).front() == alone_[i]) << i;
    }
  }
}

TEST_P(InvarianceTest, PageIdsAndChunksOfTheTableChangeNoBit) {
  for (const uint64_t page_seed : {2, 3, 4}) {
    for (const int32_t chunk_log2 : {0, 2, 9}) {
      ExpectSameBits(
          MustRun(1, problem_,
                  {.page_seed = page_seed, .spare_pages = 40, .table_chunk_log2 = chunk_log2}),
          alone_);
    }
  }
}

TEST_P(InvarianceTest, PageSizeChangesNoBit) {
  for (const uint32_t page_size : {1u, 3u, 8u, 32u, 48u, 100u, 128u, 512u}) {
    SCOPED_TRACE(page_size);
    Problem paged = problem_;
    paged.spec.page_size = page_size;
    ExpectSameBits(MustRun(1, paged, {}), alone_);
  }
}

TEST_P(InvarianceTest, CutsAtAllowedRowsAndBetweenHeadsChangeNoBit) {
  const int32_t unit = TestedBackends()[0]->prefill_cut_rows();
  for (const int32_t cut_rows : {unit, 2 * unit, 3 * unit}) {
    for (const bool cut_kv_heads : {false, true}) {
      for (const size_t backend : {0, 1}) {
        ExpectSameBits(
            MustRun(backend, problem_, {.cut_rows = cut_rows, .cut_kv_heads = cut_kv_heads}),
            alone_);
      }
    }
  }
  ExpectSameBits(MustRun(1, problem_, {.cut_kv_heads = true, .reversed = true}), alone_);
}

TEST_P(InvarianceTest, PiecesOfTheAppendChangeNoBit) {
  for (const int32_t piece : {1, 5, 16, 100}) {
    SCOPED_TRACE(piece);
    ExpectSameBits(MustRun(1, problem_, {.append_piece = piece}), alone_);
    ExpectSameBits(MustRun(1, problem_, {.append_piece = piece, .appends_in_same_launch = false}),
                   alone_);
  }
}

TEST_P(InvarianceTest, AddressesChangeNoBit) {
  ExpectSameBits(MustRun(1, problem_, {.is_misaligned = true}), alone_);
}

TEST_P(InvarianceTest, AHundredRunsGiveTheSameBits) {
  for (int i = 0; i < 100; ++i) {
    for (const size_t item : {size_t{0}, size_t{4}}) {
      ASSERT_TRUE(MustRun(2, OnlyItem(problem_, item), {}).front() == alone_[item]) << i;
    }
  }
}

// Bytes of one row of an output.
std::string RowBits(const Problem& problem, size_t item, const ItemOutput& output, int32_t row) {
  const size_t num_heads = problem.spec.num_q_heads;
  const size_t row_bytes =
      num_heads * problem.spec.head_dim_v * SizeOf(problem.items[item].out_dtype);
  std::string bits(output.out.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
  bits.append(
      reinterpret_cast<const char*>(output.lse.data() + static_cast<size_t>(row) * num_heads),
      num_heads * sizeof(float));
  return bits;
}

// Rows [row, row + count) of an item as an item of their own, over the same keys.
Problem RowsOf(const Problem& problem, size_t item, int32_t row, int32_t count) {
  Problem part = OnlyItem(problem, item);
  part.items[0].q_start += row;
  part.items[0].q_len = count;
  const size_t row_bytes = problem.QElements(item) /
                           static_cast<size_t>(problem.items[item].q_len) *
                           SizeOf(problem.spec.activation_dtype);
  const auto begin =
      part.tensors[0].q.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * row_bytes);
  part.tensors[0].q.assign(
      begin, begin + static_cast<std::ptrdiff_t>(static_cast<size_t>(count) * row_bytes));
  return part;
}

TEST_P(InvarianceTest, ARowOfADecodeItemHasItsBitsInEveryDecodeItemOverTheSameKeys) {
  // tenstorrent/tt-metal #48899: an early row of a chunk was changed by later rows.
  for (const size_t item : {size_t{2}, size_t{3}}) {
    for (int32_t row = 0; row < problem_.items[item].q_len; ++row) {
      const Problem single = RowsOf(problem_, item, row, 1);
      const ItemOutput got = MustRun(0, single, {}).front();
      EXPECT_EQ(RowBits(single, 0, got, 0), RowBits(problem_, item, alone_[item], row)) << row;
    }
  }
}

TEST_P(InvarianceTest, ARowOfAPrefillItemHasItsBitsWhateverRowsAreAroundIt) {
  const Layout prefill{.row_class = RowClass::kPrefill};
  for (const auto& [first, count] : std::vector<std::pair<int32_t, int32_t>>{
           {0, 1}, {1, 1}, {3, 5}, {15, 2}, {40, 33}, {99, 1}}) {
    const Problem part = RowsOf(problem_, 5, first, count);
    const ItemOutput got = MustRun(0, part, prefill).front();
    for (int32_t row = 0; row < count; ++row) {
      EXPECT_EQ(RowBits(part, 0, got, row), RowBits(problem_, 5, alone_[5], first + row)) << row;
    }
  }
}

TEST_P(InvarianceTest, TheQueriesOfOtherRowsChangeNoBit) {
  for (const size_t item : {size_t{3}, size_t{4}, size_t{5}}) {
    Problem changed = OnlyItem(problem_, item);
    const Problem first_row = RowsOf(problem_, item, 0, 1);
    FillTensor(changed, changed.tensors[0].q, 0.25f);
    std::memcpy(changed.tensors[0].q.data(), first_row.tensors[0].q.data(),
                first_row.tensors[0].q.size());
    const ItemOutput got = MustRun(0, changed, {}).front();
    EXPECT_EQ(RowBits(changed, 0, got, 0), RowBits(problem_, item, alone_[item], 0)) << item;
  }
}

TEST_P(InvarianceTest, KeysThatARowDoesNotSeeChangeNoBit) {
  // Dao-AILab/flash-attention #1016, flashinfer-ai/flashinfer PR 350: masked keys under a cap.
  for (const size_t item : {size_t{3}, size_t{5}}) {
    const int64_t position = problem_.items[item].q_start;  // of row 0
    Problem changed = OnlyItem(problem_, item);
    for (int64_t key = position + 1; key < problem_.items[item].kv_len; ++key) {
      for (uint32_t head = 0; head < problem_.spec.num_kv_heads; ++head) {
        FillVector(changed, changed.tensors[0].k, problem_.spec.num_kv_heads,
                   problem_.spec.head_dim_qk, key, head, 7.0f);
        FillVector(changed, changed.tensors[0].v, problem_.spec.num_kv_heads,
                   problem_.spec.head_dim_v, key, head, 100.0f);
      }
    }
    const ItemOutput got = MustRun(0, changed, {}).front();
    EXPECT_FALSE(got == alone_[item]) << "later rows see the change";
    EXPECT_EQ(RowBits(changed, 0, got, 0), RowBits(problem_, item, alone_[item], 0)) << item;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, InvarianceTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace attn::test
