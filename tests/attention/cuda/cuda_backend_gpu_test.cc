// What the CUDA backend does beyond what every backend does: launches that overlap, launches larger
// than its staging, memory that comes and goes, and a device that is lost.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "attn/attention/cuda_backend.h"
#include "attn/base/error.h"
#include "tests/support/attention_case.h"
#include "tests/support/expect_reference.h"
#include "tests/support/gpu_test.h"
#include "tests/support/paged_memory.h"
#include "tests/support/paged_run.h"

namespace attn::test {
namespace {

class CudaBackendGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    backend_ = CreateCudaBackend({}).value();
  }

  static AttentionSpec Spec(uint32_t num_q_heads = 8, uint32_t num_kv_heads = 2) {
    return SpecOf(num_q_heads, num_kv_heads, 128, DType::kBFloat16);
  }

  // One sequence, one row that attends to all of it.
  struct Job {
    PageIds pages;
    std::vector<char> q, k, v, out;
    int32_t len;

    Batch AsBatch(const AttentionSpec& spec) {
      Batch batch;
      batch.appends.push_back({.k = k.data(),
                               .v = v.data(),
                               .pages = pages.view(),
                               .count = static_cast<uint32_t>(len)});
      batch.rows.push_back({.q = q.data(),
                            .out = out.data(),
                            .pages = pages.view(),
                            .q_start = len - 1,
                            .q_len = 1,
                            .kv_end = len,
                            .kv_head_end = spec.num_kv_heads,
                            .out_dtype = DType::kBFloat16});
      return batch;
    }
  };

  static Job MakeJob(PagedMemory& memory, const AttentionSpec& spec, int32_t len, uint64_t seed) {
    const size_t kv = static_cast<size_t>(len) * spec.num_kv_heads * 128;
    const size_t q = size_t{spec.num_q_heads} * 128;
    return {PageIds(memory.TakeFor(len), 31),
            NormalTensor(DType::kBFloat16, q, seed),
            NormalTensor(DType::kBFloat16, kv, seed + 1),
            NormalTensor(DType::kBFloat16, kv, seed + 2),
            std::vector<char>(2 * q, '\xff'),
            len};
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CudaBackendGpuTest, IsNamedAfterTheDevice) {
  EXPECT_NE(backend_->device_name().find("cuda, "), std::string::npos) << backend_->device_name();
}

TEST_F(CudaBackendGpuTest, LaunchesMayBeUnderWayTogetherAndBeWaitedForInAnyOrder) {
  const AttentionSpec spec = Spec();
  PagedMemory memory = PagedMemory::Create(*backend_, spec, 400, 3).value();
  std::vector<Job> jobs;
  for (int i = 0; i < 8; ++i) jobs.push_back(MakeJob(memory, spec, 300 + 37 * i, 100 + 10 * i));
  std::vector<Batch> batches;
  for (Job& job : jobs) batches.push_back(job.AsBatch(spec));
  std::vector<std::vector<char>> alone;
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(Execute(*backend_, memory.store(), batches[i]).ok());
    alone.push_back(jobs[i].out);
    jobs[i].out.assign(jobs[i].out.size(), '\xff');
  }
  std::vector<Ticket> tickets;
  for (const Batch& batch : batches) {
    tickets.push_back(backend_->Launch(memory.store(), batch).value());
  }
  for (const size_t i : {7u, 0u, 3u, 1u, 2u, 6u, 5u, 4u}) {
    ASSERT_TRUE(backend_->Wait(tickets[i]).ok());
    EXPECT_EQ(jobs[i].out, alone[i]) << i;
  }
}

TEST_F(CudaBackendGpuTest, ALaunchLargerThanTheStagingIsComputedWhole) {
  // 20 MiB of queries and 40 MiB of float results through three times 1 MiB.
  AttentionSpec spec = Spec(32, 8);
  AttentionCase large = BottomRightCase(spec, {{2500, 2500}, {3, 900}}, 5);
  large.items[0].out_dtype = DType::kFloat32;
  const Problem problem = MakeProblem(large);
  const std::vector<ItemOutput> whole = RunOnBackend(*backend_, problem, {}).value();
  const auto small = CreateCudaBackend({.staging_bytes = int64_t{1} << 20}).value();
  const std::vector<ItemOutput> cut = RunOnBackend(*small, problem, {}).value();
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(whole[i] == cut[i]) << i;
}

TEST_F(CudaBackendGpuTest, PagesKeepTheirContentWhileOthersComeAndGo) {
  const AttentionSpec spec = Spec();
  const auto store = backend_->CreateKvStore(spec, {.num_pages = 4096}).value();
  const int64_t page_bytes = store->page_bytes();
  const auto pages_per_granule = static_cast<int32_t>((int64_t{2} << 20) / page_bytes);
  // Page 0 of the range stays; the neighbours share its granule, or border on it.
  ASSERT_TRUE(store->CommitPages(0, 50).ok());
  std::vector<PageId> ids(50);
  for (int i = 0; i < 50; ++i) ids[static_cast<size_t>(i)] = i;
  const PageIds pages(ids, 31);
  const size_t kv = size_t{800} * spec.num_kv_heads * 128;
  const std::vector<char> k = NormalTensor(DType::kBFloat16, kv, 1);
  const std::vector<char> q = NormalTensor(DType::kBFloat16, size_t{8} * 128, 2);
  Batch append;
  append.appends.push_back({.k = k.data(), .v = k.data(), .pages = pages.view(), .count = 800});
  ASSERT_TRUE(Execute(*backend_, *store, append).ok());
  const auto attend = [&] {
    std::vector<char> out(size_t{8} * 128 * 2, '\xff');
    Batch batch;
    batch.rows.push_back({.q = q.data(),
                          .out = out.data(),
                          .pages = pages.view(),
                          .q_start = 799,
                          .q_len = 1,
                          .kv_end = 800,
                          .kv_head_end = 2,
                          .out_dtype = DType::kBFloat16});
    EXPECT_TRUE(Execute(*backend_, *store, batch).ok());
    return out;
  };
  const std::vector<char> before = attend();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(store->CommitPages(50, 2 * pages_per_granule).ok());
    EXPECT_EQ(attend(), before);
    store->ReleasePages(50, 2 * pages_per_granule);
    EXPECT_EQ(attend(), before);
  }
}

TEST_F(CudaBackendGpuTest, MoreMemoryThanThereIsIsNoPagesAndHurtsNothing) {
  const AttentionSpec spec = Spec(8, 8);
  const int64_t page_bytes = backend_->PageBytes(spec);
  const auto too_many = static_cast<int32_t>((int64_t{1} << 40) / page_bytes);
  const auto store = backend_->CreateKvStore(spec, {.num_pages = too_many}).value();
  EXPECT_EQ(ReasonOf(store->CommitPages(0, too_many)), Reason::kNoPages);
  EXPECT_TRUE(store->CommitPages(0, 1000).ok());
  ExpectReference(*backend_, MakeProblem(BottomRightCase(spec, {{2, 500}}, 4)));
}

// For compute-sanitizer, under which a launch takes a hundred times as long.
TEST_F(CudaBackendGpuTest, AFewItemsOfAllKindsForSlowTools) {
  for (const uint32_t page_size : {5u, 16u}) {
    AttentionSpec spec = Spec();
    spec.page_size = page_size;
    spec.num_layers = 2;
    spec.score.window.left = 200;
    spec.score.sink_logits_per_head = 1;
    AttentionCase mixed = BottomRightCase(spec, {{1, 400}, {40, 150}, {5, 100}, {1, 0}}, 6);
    mixed.items[1].layer = 1;
    mixed.items[2].out_dtype = DType::kFloat32;
    ExpectReference(*backend_, MakeProblem(mixed));
  }
  PagedMemory memory = PagedMemory::Create(*backend_, Spec(), 6, 3).value();
  const std::vector<PageId> ids = memory.Take(3);
  const uint32_t slots[] = {7};
  Batch copies;
  copies.copies = {{ids[0], ids[1], slots}, {ids[1], ids[2], slots}};
  EXPECT_TRUE(Execute(*backend_, memory.store(), copies).ok());
}

// A page without memory: the first launch that touches it ends the device for this process.
void TouchMissingMemory() {
  const auto backend = CreateCudaBackend({}).value();
  const AttentionSpec spec = SpecOf(8, 2, 128, DType::kBFloat16);
  const auto store = backend->CreateKvStore(spec, {.num_pages = 100'000}).value();
  const PageIds pages({90'000}, 31);
  const std::vector<char> k(size_t{2} * 128 * 2, '\0');
  Batch batch;
  batch.appends.push_back({.k = k.data(), .v = k.data(), .pages = pages.view(), .count = 1});
  const Ticket ticket = backend->Launch(*store, batch).value();
  const bool waited = ReasonOf(backend->Wait(ticket)) == Reason::kDeviceLost;
  const bool launched = ReasonOf(backend->Launch(*store, batch).status()) == Reason::kDeviceLost;
  const bool made =
      ReasonOf(backend->CreateKvStore(spec, {.num_pages = 1}).status()) == Reason::kDeviceLost;
  std::_Exit(waited && launched && made ? 7 : 1);
}

class CudaBackendGpuDeathTest : public GpuTest {};

TEST_F(CudaBackendGpuDeathTest, ALostDeviceIsReportedByWaitAndByEverythingAfterIt) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(TouchMissingMemory(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace attn::test
