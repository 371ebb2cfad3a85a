// Appends and page copies on a device: the named slots change, every other byte of the pool stays.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "attention/cuda/append/append_kv.h"
#include "attention/cuda/append/copy_pages.h"
#include "attention/cuda/device_buffer.h"
#include "attention/cuda/stream.h"
#include "tests/support/gpu_test.h"

namespace attn::cuda {
namespace {

constexpr int32_t kPages = 9;
constexpr int32_t kLayers = 2;
constexpr int32_t kHeads = 3;

template <typename T>
DeviceBuffer ToDevice(const std::vector<T>& values) {
  DeviceBuffer buffer = DeviceBuffer::Create(values.size() * sizeof(T)).value();
  EXPECT_EQ(cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice),
            cudaSuccess);
  return buffer;
}

std::vector<uint8_t> RandomBytes(std::mt19937_64& random, size_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

class PageBytesGpuTest : public test::GpuTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    pool_ = {nullptr, kPages, kLayers, kHeads, GetParam()};
    expected_ = RandomBytes(random_, static_cast<size_t>(kPages * pool_.page_bytes()));
    bytes_ = ToDevice(expected_);
    pool_.base = bytes_.data();
  }

  void ExpectPool() {
    std::vector<uint8_t> got(expected_.size());
    ASSERT_EQ(cudaMemcpy(got.data(), bytes_.data(), got.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_TRUE(got == expected_);
  }
  uint8_t* ExpectedRow(int32_t page, int32_t layer, int32_t head, int32_t slot, bool is_value) {
    const int32_t block = pool_.KeyBlockInPage(layer, head) + (is_value ? kHeads : 0);
    return expected_.data() + pool_.OffsetOf(pool_.BlockOf(page, block), slot);
  }

  std::mt19937_64 random_{7};
  KvPool pool_;
  std::vector<uint8_t> expected_;
  DeviceBuffer bytes_;
};

TEST_P(PageBytesGpuTest, AppendWritesTheNamedSlotsOnly) {
  const int32_t page_size = GetParam();
  const std::vector<int32_t> table = {7, 0, 5, 2};
  const int32_t begin = page_size > 1 ? page_size - 1 : 0;
  const int32_t count = 2 * page_size + (page_size > 1 ? 1 : 0);
  const size_t row_bytes = size_t{kHeads} * kKvRowBytes;
  const std::vector<uint8_t> k = RandomBytes(random_, count * row_bytes);
  const std::vector<uint8_t> v = RandomBytes(random_, count * row_bytes);
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t head = 0; head < kHeads; ++head) {
      const int32_t page = table[(begin + i) / page_size];
      const int32_t slot = (begin + i) % page_size;
      const size_t source = i * row_bytes + size_t{1} * head * kKvRowBytes;
      std::memcpy(ExpectedRow(page, 1, head, slot, false), &k[source], kKvRowBytes);
      std::memcpy(ExpectedRow(page, 1, head, slot, true), &v[source], kKvRowBytes);
    }
  }
  const DeviceBuffer device_k = ToDevice(k), device_v = ToDevice(v), device_table = ToDevice(table);
  const DeviceBuffer records = ToDevice(std::vector<AppendRecord>{
      {device_k.data(), device_v.data(), device_table.as<int32_t>(), 1, begin, count}});
  std::vector<AppendItem> items;
  for (int32_t first = 0; first < count; first += kAppendSlots) items.push_back({0, first});
  const DeviceBuffer device_items = ToDevice(items);
  const Stream stream = Stream::Create().value();
  ASSERT_TRUE(LaunchAppendKv(pool_, records.as<AppendRecord>(), device_items.as<AppendItem>(),
                             static_cast<int>(items.size()), stream.get())
                  .ok());
  ASSERT_TRUE(stream.Synchronize().ok());
  ExpectPool();
}

TEST_P(PageBytesGpuTest, CopiesMoveTheNamedSlotsOfEachLayer) {
  const auto page_size = static_cast<uint32_t>(GetParam());
  const std::vector<uint32_t> slots = {page_size, page_size / 2};
  const std::vector<std::pair<int32_t, int32_t>> moves = {{1, 4}, {1, 6}, {8, 3}};
  for (const auto& [source, target] : moves) {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (int32_t head = 0; head < kHeads; ++head) {
        for (const bool is_value : {false, true}) {
          std::memcpy(ExpectedRow(target, layer, head, 0, is_value),
                      ExpectedRow(source, layer, head, 0, is_value), slots[layer] * kKvRowBytes);
        }
      }
    }
  }
  const DeviceBuffer device_slots = ToDevice(slots);
  std::vector<PageCopyRecord> copies;
  for (const auto& [source, target] : moves) {
    copies.push_back({source, target, device_slots.as<uint32_t>()});
  }
  const DeviceBuffer device_copies = ToDevice(copies);
  const Stream stream = Stream::Create().value();
  ASSERT_TRUE(LaunchCopyPages(pool_, device_copies.as<PageCopyRecord>(),
                              static_cast<int>(copies.size()), stream.get())
                  .ok());
  ASSERT_TRUE(stream.Synchronize().ok());
  ExpectPool();
}

INSTANTIATE_TEST_SUITE_P(PageSizes, PageBytesGpuTest, testing::Values(1, 5, 16, 64));

}  // namespace
}  // namespace attn::cuda
