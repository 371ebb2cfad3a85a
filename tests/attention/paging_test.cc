// Pages as the cache hands them out: shared between sequences and layers, copied in part on a fork,
// given back and taken again. Also what a launch leaves alone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/paged_memory.h"
#include "tests/support/paged_run.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Appends and rows of one item of a problem over given pages.
AppendEntry AppendOf(const Problem& problem, size_t item, const PageIds& pages, int32_t begin,
                     int32_t end) {
  const AttentionSpec& spec = problem.spec;
  const size_t first =
      static_cast<size_t>(begin) * spec.num_kv_heads * SizeOf(spec.activation_dtype);
  return {.k = problem.tensors[item].k.data() + first * spec.head_dim_qk,
          .v = problem.tensors[item].v.data() + first * spec.head_dim_v,
          .pages = pages.view(),
          .layer = problem.items[item].layer,
          .begin = static_cast<uint32_t>(begin),
          .count = static_cast<uint32_t>(end - begin)};
}

AttendEntry RowsOf(const Problem& problem, size_t item, const PageIds& pages, ItemOutput& output) {
  const CaseItem& case_item = problem.items[item];
  output.out.assign(problem.OutElements(item) * SizeOf(case_item.out_dtype),
                    static_cast<char>(0xff));
  output.lse.assign(problem.LseElements(item), NAN);
  AttendEntry entry;
  entry.q = problem.tensors[item].q.data();
  entry.out = output.out.data();
  entry.lse = output.lse.data();
  entry.pages = pages.view();
  entry.q_start = case_item.q_start;
  entry.q_len = case_item.q_len;
  entry.kv_end = case_item.kv_len;
  entry.layer = case_item.layer;
  entry.kv_head_end = problem.spec.num_kv_heads;
  entry.out_dtype = case_item.out_dtype;
  entry.row_class = ClassOf(static_cast<uint32_t>(case_item.q_len));
  entry.causal = case_item.causal;
  entry.use_sinks = case_item.use_sinks;
  return entry;
}

void ExpectAnswer(const Problem& problem, size_t item, const ItemOutput& output) {
  EXPECT_TRUE(IsWithinTolerance(problem, item, ExpectedOf(problem, item), output));
}

// Makes the first `shared` tokens of item 1 those of item 0.
void ShareTokens(Problem& problem, int32_t shared) {
  const size_t token_bytes = problem.spec.num_kv_heads * SizeOf(problem.spec.activation_dtype);
  const auto copy = [&](const std::vector<char>& from, std::vector<char>& to, uint32_t dim) {
    std::copy_n(from.begin(), static_cast<size_t>(shared) * token_bytes * dim, to.begin());
  };
  copy(problem.tensors[0].k, problem.tensors[1].k, problem.spec.head_dim_qk);
  copy(problem.tensors[0].v, problem.tensors[1].v, problem.spec.head_dim_v);
}

PagedMemory Memory(const AttentionSpec& spec, int32_t num_pages, uint64_t seed = 1) {
  return PagedMemory::Create(CpuBackendOf(2), spec, num_pages, seed).value();
}

TEST(PagingTest, SequencesThatShareAPrefixPageGiveTheBitsOfTheirOwn) {
  for (const DType dtype : kDTypes) {
    Problem problem =
        MakeProblem(BottomRightCase(SpecOf(4, 2, 64, dtype), {{1, 100}, {20, 150}}, 31));
    ShareTokens(problem, 64);
    const auto apart = RunOnBackend(CpuBackendOf(2), problem, {});
    ASSERT_TRUE(apart.ok()) << apart.status();

    PagedMemory memory = Memory(problem.spec, 20);
    const std::vector<PageId> prefix = memory.Take(4);
    std::vector<PageId> first = prefix;
    std::vector<PageId> second = prefix;
    for (const PageId page : memory.TakeFor(100 - 64)) first.push_back(page);
    for (const PageId page : memory.TakeFor(150 - 64)) second.push_back(page);
    const PageIds first_pages(first, 2);
    const PageIds second_pages(second, 31);
    Batch batch;
    batch.appends = {AppendOf(problem, 0, first_pages, 0, 100),
                     AppendOf(problem, 1, second_pages, 64, 150)};
    std::vector<ItemOutput> outputs(2);
    batch.rows = {RowsOf(problem, 0, first_pages, outputs[0]),
                  RowsOf(problem, 1, second_pages, outputs[1])};
    ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
    EXPECT_TRUE(outputs[0] == (*apart)[0]);
    EXPECT_TRUE(outputs[1] == (*apart)[1]);
  }
}

TEST(PagingTest, AForkCopiesTheSlotsBelowItsLengthAndBothSidesGoOnAlone) {
  // After huggingface/transformers PR 46765: fork at 20 with page 16, append to both.
  for (const DType dtype : kDTypes) {
    for (const uint32_t page_size : {3u, 8u, 16u, 64u}) {
      AttentionSpec spec = SpecOf(4, 2, 40, dtype);
      spec.page_size = page_size;
      Problem problem = MakeProblem(BottomRightCase(spec, {{1, 30}, {1, 45}}, 32));
      ShareTokens(problem, 20);
      PagedMemory memory = Memory(spec, 40);
      const std::vector<PageId> parent = memory.TakeFor(30);
      std::vector<PageId> child(parent.begin(), parent.begin() + 20 / page_size);
      while (child.size() * page_size < 45) child.push_back(memory.Take(1).front());
      const PageIds parent_pages(parent, 31);
      const PageIds child_pages(child, 31);

      Batch before;
      before.appends = {AppendOf(problem, 0, parent_pages, 0, 20)};
      ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), before).ok());
      // One launch: the copy first, then both appends, then both rows.
      const uint32_t slots[] = {20 % page_size};
      Batch batch;
      batch.copies = {{.source = parent[20 / page_size],
                       .target = child[20 / page_size],
                       .slots_per_layer = slots}};
      batch.appends = {AppendOf(problem, 1, child_pages, 20, 45),
                       AppendOf(problem, 0, parent_pages, 20, 30)};
      std::vector<ItemOutput> outputs(2);
      batch.rows = {RowsOf(problem, 0, parent_pages, outputs[0]),
                    RowsOf(problem, 1, child_pages, outputs[1])};
      ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
      ExpectAnswer(problem, 0, outputs[0]);
      ExpectAnswer(problem, 1, outputs[1]);
    }
  }
}

TEST(PagingTest, ACopyTakesItsOwnNumberOfSlotsInEachLayerAndCopiesAreDoneInOrder) {
  AttentionSpec spec = SpecOf(2, 1, 32);
  spec.num_layers = 3;
  const uint32_t slots[] = {16, 5, 0};
  AttentionCase three_layers = BottomRightCase(spec, {{1, 16}, {1, 5}, {1, 16}}, 33);
  for (uint32_t layer = 0; layer < 3; ++layer) three_layers.items[layer].layer = layer;
  const Problem problem = MakeProblem(three_layers);
  PagedMemory memory = Memory(spec, 6);
  const std::vector<PageId> pages = memory.Take(3);
  const PageIds source({pages[0]}, 31);
  const PageIds target({pages[2]}, 31);
  Batch before;
  for (size_t i = 0; i < 2; ++i) {
    before.appends.push_back(AppendOf(problem, i, source, 0, problem.items[i].kv_len));
  }
  // Layer 2 has data of its own in the target, which copies of no slots leave alone.
  before.appends.push_back(AppendOf(problem, 2, target, 0, 16));
  ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), before).ok());
  Batch batch;
  batch.copies = {{.source = pages[0], .target = pages[1], .slots_per_layer = slots},
                  {.source = pages[1], .target = pages[2], .slots_per_layer = slots}};
  std::vector<ItemOutput> outputs(3);
  for (size_t i = 0; i < 3; ++i) batch.rows.push_back(RowsOf(problem, i, target, outputs[i]));
  ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
  for (size_t i = 0; i < 3; ++i) ExpectAnswer(problem, i, outputs[i]);
}

TEST(PagingTest, LayersOfOneSequenceShareItsPagesWithoutMeeting) {
  for (const DType dtype : kDTypes) {
    AttentionSpec spec = SpecOf(4, 2, 48, dtype);
    spec.num_layers = 3;
    spec.score.sink_logits_per_head = 1;
    AttentionCase layers = BottomRightCase(spec, {{1, 70}, {5, 60}, {30, 70}}, 34);
    for (uint32_t layer = 0; layer < 3; ++layer) layers.items[layer].layer = layer;
    const Problem problem = MakeProblem(layers);
    PagedMemory memory = Memory(problem.spec, 8);
    const PageIds pages(memory.TakeFor(70), 1);
    Batch batch;
    std::vector<ItemOutput> outputs(3);
    for (size_t i = 0; i < 3; ++i) {
      batch.appends.push_back(AppendOf(problem, i, pages, 0, problem.items[i].kv_len));
      batch.rows.push_back(RowsOf(problem, i, pages, outputs[i]));
    }
    ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
    for (size_t i = 0; i < 3; ++i) ExpectAnswer(problem, i, outputs[i]);
  }
}

TEST(PagingTest, APageTakenAgainShowsNothingOfItsFormerOwner) {
  const Problem problem = MakeProblem(BottomRightCase(SpecOf(4, 2, 64), {{2, 33}}, 35));
  for (const float stale :
       {std::numeric_limits<float>::quiet_NaN(), 3e4f, std::numeric_limits<float>::infinity()}) {
    PagedMemory memory = Memory(problem.spec, 3);
    const std::vector<PageId> ids = memory.Take(3);
    ASSERT_TRUE(memory.Fill(CpuBackendOf(2), ids, stale).ok());
    const PageIds pages(ids, 31);
    Batch batch;
    batch.appends = {AppendOf(problem, 0, pages, 0, 33)};
    ItemOutput output;
    batch.rows = {RowsOf(problem, 0, pages, output)};
    ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
    ExpectAnswer(problem, 0, output);
  }
}

TEST(PagingTest, ReleasedPagesCanBeCommittedAndUsedAgain) {
  const Problem problem = MakeProblem(BottomRightCase(SpecOf(4, 2, 64), {{2, 33}}, 36));
  Backend& backend = CpuBackendOf(2);
  auto store = backend.CreateKvStore(problem.spec, {.num_pages = 64});
  ASSERT_TRUE(store.ok()) << store.status();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE((*store)->CommitPages(8, 16).ok());
    const PageIds pages({20, 9, 15}, 31);
    Batch batch;
    batch.appends = {AppendOf(problem, 0, pages, 0, 33)};
    ItemOutput output;
    batch.rows = {RowsOf(problem, 0, pages, output)};
    ASSERT_TRUE(Execute(backend, **store, batch).ok());
    ExpectAnswer(problem, 0, output);
    (*store)->ReleasePages(8, 16);
  }
}

TEST(PagingTest, EntriesOfThePageTableBeyondTheKeysAreNotFollowed) {
  const Problem problem = MakeProblem(BottomRightCase(SpecOf(4, 2, 64), {{1, 33}}, 37));
  PagedMemory memory = Memory(problem.spec, 8);
  std::vector<PageId> ids = memory.TakeFor(33);
  ids.resize(9, kNoPage);
  const PageIds pages(ids, 31);
  Batch batch;
  batch.appends = {AppendOf(problem, 0, pages, 0, 33)};
  ItemOutput output;
  batch.rows = {RowsOf(problem, 0, pages, output)};
  ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
  ExpectAnswer(problem, 0, output);
}

TEST(PagingTest, HeadsOutsideTheEntryKeepTheirOldOutput) {
  for (const int32_t q_len : {2, 30}) {
    const Problem problem = MakeProblem(BottomRightCase(SpecOf(6, 3, 64), {{q_len, 300}}, 38));
    const auto whole = RunOnBackend(CpuBackendOf(2), problem, {});
    ASSERT_TRUE(whole.ok()) << whole.status();
    PagedMemory memory = Memory(problem.spec, 20);
    const PageIds pages(memory.TakeFor(300), 31);
    Batch batch;
    batch.appends = {AppendOf(problem, 0, pages, 0, 300)};
    ItemOutput output;
    batch.rows = {RowsOf(problem, 0, pages, output)};
    const ItemOutput untouched = output;
    batch.rows[0].kv_head_begin = 1;
    batch.rows[0].kv_head_end = 2;
    ASSERT_TRUE(Execute(CpuBackendOf(2), memory.store(), batch).ok());
    const std::vector<double> got = output.OutAsDoubles(DType::kFloat32);
    const std::vector<double> want = (*whole)[0].OutAsDoubles(DType::kFloat32);
    for (size_t at = 0; at < output.lse.size(); ++at) {
      const bool is_computed = at % 6 / 2 == 1;
      EXPECT_EQ(std::isnan(output.lse[at]), !is_computed) << at;
      for (size_t d = 0; d < 64; ++d) {
        EXPECT_EQ(std::isnan(got[at * 64 + d]), !is_computed) << at;
        if (is_computed) {
          EXPECT_EQ(got[at * 64 + d], want[at * 64 + d]) << at;
        }
      }
    }
  }
}

TEST(PagingTest, AnEmptyBatchIsDoneAtOnce) {
  PagedMemory memory = Memory(SpecOf(1, 1, 8), 1);
  EXPECT_TRUE(Execute(CpuBackendOf(2), memory.store(), Batch()).ok());
}

}  // namespace
}  // namespace attn::test
