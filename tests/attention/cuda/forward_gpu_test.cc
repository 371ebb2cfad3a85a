// The forward kernel on a device: results against the reference for every feature, and bits that do
// not depend on batch mates.
#include <gtest/gtest.h>

#include <vector>

#include "tests/attention/cuda/device_case.h"
#include "tests/attention/cuda/sampled_reference.h"
#include "tests/support/gpu_test.h"

namespace attn::cuda {
namespace {

std::vector<CaseEntry> RaggedEntries() {
  std::vector<CaseEntry> entries = {Rows(200, 200), Rows(128, 1000, false), Rows(1, 77),
                                    Rows(0, 30),    Rows(333, 333, false),  Rows(700, 1501),
                                    Rows(17, 0),    Rows(300, 100),         Rows(64, 128)};
  entries[2].writes_fp32 = true;
  entries[5].writes_fp32 = true;
  return entries;
}

std::vector<DeviceCase> Cases() {
  std::vector<DeviceCase> cases;
  for (const int page : {1, 5, 8, 16, 24, 64, 128, 2048}) {
    cases.push_back(Case("pages", 8, 2, page, RaggedEntries()));
  }
  for (const auto& [q_heads, kv_heads] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 1}, {14, 2}, {8, 1}, {64, 1}, {12, 4}}) {
    cases.push_back(Case("groups", q_heads, kv_heads, 16, RaggedEntries()));
  }
  DeviceCase window = Case("window", 8, 2, 16, RaggedEntries());
  window.left = 130;
  window.right = 70;
  cases.push_back(window);
  window.left = 0;
  window.right = 0;
  cases.push_back(window);
  window.left = 1023;
  window.right.reset();
  window.page_size = 64;
  window.entries = {Rows(3000, 5000), Rows(1500, 2000, false)};
  cases.push_back(window);

  DeviceCase capped = Case("soft cap", 8, 2, 16, RaggedEntries());
  capped.soft_cap = 5.0f;
  capped.spread = 8.0f;
  cases.push_back(capped);
  DeviceCase sinks = Case("sinks", 8, 2, 16, RaggedEntries());
  sinks.num_sinks = 3;
  sinks.num_layers = 3;
  for (size_t i = 0; i < sinks.entries.size(); ++i) {
    sinks.entries[i].layer = static_cast<int32_t>(i % 3);
    sinks.entries[i].uses_sinks = i % 4 != 3;
  }
  cases.push_back(sinks);
  for (const float scale : {-0.1f, 0.0f}) {
    DeviceCase scaled = Case("scale", 8, 2, 16, RaggedEntries());
    scaled.scale = scale;
    cases.push_back(scaled);
  }
  DeviceCase shifted = Case("rows before and beyond the keys", 8, 2, 16, RaggedEntries());
  shifted.left = 200;
  shifted.entries[0].q_start = -100;
  shifted.entries[1].q_start = 950;
  shifted.entries[5].q_start = int64_t{1} << 40;
  shifted.entries[4].q_start = 5;
  cases.push_back(shifted);
  DeviceCase large = Case("large logits", 8, 2, 16, RaggedEntries());
  large.spread = 100.0f;
  cases.push_back(large);
  // Some rows of a tile meet scores far above all before, others do not.
  DeviceCase middling = Case("middling logits", 8, 2, 16, RaggedEntries());
  middling.spread = 6.0f;
  cases.push_back(middling);
  for (size_t i = 0; i < cases.size(); ++i) cases[i].seed = 100 + i;
  return cases;
}

EntryOutputs LastRowsOf(const EntryOutputs& outputs, size_t rows, size_t last) {
  EntryOutputs result = outputs;
  result.out.erase(result.out.begin(), result.out.end() - outputs.out.size() / rows * last);
  result.lse.erase(result.lse.begin(), result.lse.end() - outputs.lse.size() / rows * last);
  return result;
}

class ForwardGpuTest : public test::GpuTest {};

TEST_F(ForwardGpuTest, MatchesTheReference) {
  for (const DeviceCase& c : Cases()) {
    SCOPED_TRACE(testing::PrintToString(c));
    auto on_device = CaseOnDevice::Create(c);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    auto outputs = (*on_device)->RunForward();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(Judge(**on_device, *outputs, 24), "");
  }
}

// For compute-sanitizer, under which a launch takes a hundred times as long.
TEST_F(ForwardGpuTest, FewShortEntriesForSlowTools) {
  for (const int page : {5, 16}) {
    DeviceCase c = Case("slow tools", 4, 2, page, {Rows(70, 150), Rows(33, 300, false)});
    c.num_sinks = 1;
    c.left = 200;
    auto on_device = CaseOnDevice::Create(c);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    auto outputs = (*on_device)->RunForward();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(Judge(**on_device, *outputs, 8), "");
  }
}

TEST_F(ForwardGpuTest, RepeatsGiveTheSameBits) {
  const DeviceCase c = Case("repeats", 8, 2, 16, RaggedEntries());
  auto on_device = CaseOnDevice::Create(c);
  ASSERT_TRUE(on_device.ok()) << on_device.status();
  const auto first = (*on_device)->RunForward();
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 0; i < 50; ++i) {
    const auto again = (*on_device)->RunForward();
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(*first == *again) << "repeat " << i;
  }
}

// The same item alone, in crowds, on other pages, and cut at 512 rows.
TEST_F(ForwardGpuTest, BitsDoNotDependOnMatesPagesOrCuts) {
  CaseEntry watched = Rows(1300, 1700);
  watched.seed = 77;
  DeviceCase alone = Case("alone", 8, 2, 16, {watched});
  alone.left = 900;
  auto on_device = CaseOnDevice::Create(alone);
  ASSERT_TRUE(on_device.ok()) << on_device.status();
  const auto expected = (*on_device)->RunForward();
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int i = 0; i < 8; ++i) {
    DeviceCase crowd = alone;
    crowd.seed = 200 + i;
    crowd.page_size = i % 2 == 0 ? 16 : 3;
    crowd.entries = RaggedEntries();
    crowd.entries.resize(static_cast<size_t>(i % 4 + 1));
    crowd.entries.insert(crowd.entries.begin() + i % 2, watched);
    auto crowd_on_device = CaseOnDevice::Create(crowd);
    ASSERT_TRUE(crowd_on_device.ok()) << crowd_on_device.status();
    const auto got = (*crowd_on_device)->RunForward();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE((*got)[i % 2] == (*expected)[0]) << crowd;
  }
}

// The same rows in other places of their tiles, beside other rows. Logits are such that in most
// tiles some rows move their maximum and others do not.
TEST_F(ForwardGpuTest, BitsDoNotDependOnTheRowsOfTheSameTile) {
  constexpr int32_t kRows = 400;
  DeviceCase whole = Case("whole", 8, 2, 16, {Rows(kRows, 1500)});
  whole.spread = 6.0f;
  whole.entries[0].seed = 78;
  auto on_device = CaseOnDevice::Create(whole);
  ASSERT_TRUE(on_device.ok()) << on_device.status();
  const auto expected = (*on_device)->RunForward();
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int32_t skipped : {1, 2, 5, 37, 399}) {
    DeviceCase rest = whole;
    rest.entries[0].q_len = kRows - skipped;
    rest.entries[0].skipped_q = skipped;
    auto rest_on_device = CaseOnDevice::Create(rest);
    ASSERT_TRUE(rest_on_device.ok()) << rest_on_device.status();
    const auto got = (*rest_on_device)->RunForward();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(LastRowsOf((*expected)[0], kRows, kRows - skipped) == (*got)[0]) << skipped;
  }
}

}  // namespace
}  // namespace attn::cuda
