// The decode kernels on a device: results against the reference for every feature, and bits that
// depend neither on extents nor on batch mates.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "attention/cuda/decode/config.h"
#include "tests/attention/cuda/device_case.h"
#include "tests/attention/cuda/sampled_reference.h"
#include "tests/support/gpu_test.h"

namespace attn::cuda {
namespace {

std::vector<CaseEntry> OneRowEntries() {
  return {Rows(1, 1),  Rows(1, 17),   Rows(1, 1000), Rows(1, 8192), Rows(1, 3333),
          Rows(1, 16), Rows(1, 2049), Rows(1, 0),    Rows(1, 256),  Rows(1, 257)};
}

std::vector<CaseEntry> ManyRowEntries() {
  std::vector<CaseEntry> entries = {Rows(16, 3000), Rows(2, 1),   Rows(5, 700, false),
                                    Rows(1, 5000),  Rows(7, 513), Rows(3, 260)};
  entries[2].writes_fp32 = true;
  entries[3].writes_fp32 = true;
  return entries;
}

std::vector<DeviceCase> Cases() {
  std::vector<DeviceCase> cases;
  for (const int page : {1, 3, 8, 16, 48, 64, 8192}) {
    cases.push_back(Case("one row", 8, 2, page, OneRowEntries()));
    cases.push_back(Case("rows", 8, 2, page, ManyRowEntries()));
  }
  for (const auto& [q_heads, kv_heads] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 1}, {14, 2}, {8, 1}, {40, 2}}) {
    cases.push_back(Case("groups", q_heads, kv_heads, 16, ManyRowEntries()));
    cases.push_back(Case("groups, one row", q_heads, kv_heads, 16, OneRowEntries()));
  }
  DeviceCase window = Case("window", 8, 2, 16, ManyRowEntries());
  window.left = 300;
  window.right = 2;
  cases.push_back(window);
  window.left = 0;
  window.right = 0;
  cases.push_back(window);
  window.entries = OneRowEntries();
  window.left = 1100;
  window.page_size = 5;
  cases.push_back(window);
  DeviceCase capped = Case("soft cap", 8, 2, 16, ManyRowEntries());
  capped.soft_cap = 5.0f;
  capped.spread = 8.0f;
  cases.push_back(capped);
  DeviceCase sinks = Case("sinks and layers", 8, 2, 16, ManyRowEntries());
  sinks.num_sinks = 2;
  sinks.num_layers = 3;
  for (size_t i = 0; i < sinks.entries.size(); ++i) {
    sinks.entries[i].layer = static_cast<int32_t>(i % 3);
    sinks.entries[i].uses_sinks = i != 2;
  }
  cases.push_back(sinks);
  for (const float scale : {-0.1f, 0.0f}) {
    DeviceCase scaled = Case("scale", 8, 2, 16, ManyRowEntries());
    scaled.scale = scale;
    cases.push_back(scaled);
  }
  DeviceCase shifted = Case("rows before and beyond the keys", 8, 2, 16, ManyRowEntries());
  shifted.left = 400;
  shifted.entries[0].q_start = -8;
  shifted.entries[3].q_start = 5200;
  shifted.entries[4].q_start = int64_t{1} << 40;
  cases.push_back(shifted);
  DeviceCase large = Case("large logits", 8, 2, 16, ManyRowEntries());
  large.spread = 100.0f;
  cases.push_back(large);
  cases.push_back(Case("long", 4, 1, 16, {Rows(1, 100000), Rows(1, 40000), Rows(2, 70001)}));
  // Leaves on both sides of position 2^18, whose common ancestor is far up the tree of merges.
  DeviceCase border = Case("window across a border", 2, 1, 64, {Rows(1, (1 << 18) + 900)});
  border.left = 2500;
  cases.push_back(border);
  for (size_t i = 0; i < cases.size(); ++i) cases[i].seed = 300 + i;
  return cases;
}

class DecodeGpuTest : public test::GpuTest {};

TEST_F(DecodeGpuTest, MatchesTheReferenceWithTheSameBitsForAllExtents) {
  for (const DeviceCase& c : Cases()) {
    SCOPED_TRACE(testing::PrintToString(c));
    auto on_device = CaseOnDevice::Create(c);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    const auto planned = (*on_device)->RunDecode(std::nullopt);
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_EQ(Judge(**on_device, *planned, 12), "");
    for (int extent_log2 = 0; extent_log2 <= kMaxExtentLog2; ++extent_log2) {
      const auto outputs = (*on_device)->RunDecode(extent_log2);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_TRUE(*outputs == *planned) << "extents of " << (kLeafKeys << extent_log2);
    }
  }
}

// For compute-sanitizer, under which a launch takes a hundred times as long.
TEST_F(DecodeGpuTest, FewShortEntriesForSlowTools) {
  for (const int page : {5, 16}) {
    DeviceCase c = Case("slow tools", 4, 2, page, {Rows(1, 700), Rows(5, 300, false)});
    c.num_sinks = 1;
    auto on_device = CaseOnDevice::Create(c);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    const auto outputs = (*on_device)->RunDecode(0);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(Judge(**on_device, *outputs, 8), "");
  }
}

TEST_F(DecodeGpuTest, BitsDoNotDependOnMatesPagesOrRepeats) {
  CaseEntry watched = Rows(1, 9000);
  watched.seed = 78;
  auto on_device = CaseOnDevice::Create(Case("alone", 8, 2, 16, {watched}));
  ASSERT_TRUE(on_device.ok()) << on_device.status();
  const auto expected = (*on_device)->RunDecode(std::nullopt);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int i = 0; i < 8; ++i) {
    DeviceCase crowd = Case("crowd", 8, 2, i % 2 == 0 ? 64 : 7, ManyRowEntries());
    crowd.seed = 400 + i;
    crowd.entries.resize(static_cast<size_t>(i % 4 + 1));
    crowd.entries.insert(crowd.entries.begin() + i % 2, watched);
    auto crowd_on_device = CaseOnDevice::Create(crowd);
    ASSERT_TRUE(crowd_on_device.ok()) << crowd_on_device.status();
    for (int repeat = 0; repeat < 125; ++repeat) {
      const auto got = (*crowd_on_device)->RunDecode(std::nullopt);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_TRUE((*got)[i % 2] == (*expected)[0]) << crowd << " repeat " << repeat;
    }
  }
}

}  // namespace
}  // namespace attn::cuda
