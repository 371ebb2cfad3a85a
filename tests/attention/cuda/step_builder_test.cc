// The image of a step, on the host: everything a kernel will follow leads to the right bytes, no
// two things share a byte, and cuts of a batch leave nothing out and do nothing twice. Device
// memory is host memory here, so that addresses can be followed.
#include "attention/cuda/backend/step_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "attention/cuda/backend/batch_cutter.h"
#include "attention/cuda/backend/hand_back.h"
#include "attention/cuda/backend/supported_spec.h"
#include "attention/cuda/decode/launch.h"
#include "attn/base/error.h"

namespace attn::cuda {
namespace {

constexpr uint8_t kPoison = 0xa5;

AttentionSpec TestSpec() {
  AttentionSpec spec;
  spec.num_layers = 3;
  spec.num_q_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim_qk = spec.head_dim_v = 128;
  spec.activation_dtype = spec.kv_dtype = DType::kBFloat16;
  spec.page_size = 5;
  return spec;
}

// A batch whose tensors and page lists it owns; every byte is random.
class OwnedBatch {
 public:
  OwnedBatch(const AttentionSpec& spec, uint64_t seed) : spec_(spec), random_(seed) {}

  PageList Pages(int32_t tokens) {
    const int32_t count = (tokens + static_cast<int32_t>(spec_.page_size) - 1) /
                          static_cast<int32_t>(spec_.page_size);
    auto chunks = std::make_unique<std::vector<const PageId*>>();
    for (int32_t first = 0; first < count; first += 4) {
      auto ids = std::make_unique<std::vector<PageId>>(4);
      for (PageId& id : *ids) id = static_cast<PageId>(random_() % 1000);
      chunks->push_back(ids->data());
      ids_.push_back(std::move(ids));
    }
    if (chunks->empty()) chunks->push_back(nullptr);
    const PageList pages{chunks->data(), 2, count};
    chunks_.push_back(std::move(chunks));
    return pages;
  }

  // At an odd address.
  const uint8_t* Bytes(int64_t count) {
    auto bytes = std::make_unique<std::vector<uint8_t>>(static_cast<size_t>(count) + 1);
    for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random_());
    bytes_.push_back(std::move(bytes));
    return bytes_.back()->data() + 1;
  }

  void Append(const PageList& pages, uint32_t layer, uint32_t begin, uint32_t count) {
    const int64_t size = int64_t{count} * spec_.num_kv_heads * kKvRowBytes;
    batch.appends.push_back({Bytes(size), Bytes(size), pages, layer, begin, count});
  }

  void Rows(const PageList& pages, int32_t q_len, int32_t kv_end, DType out_dtype,
            RowClass row_class, uint32_t head_begin = 0, uint32_t head_end = 2) {
    const int64_t heads = int64_t{q_len} * spec_.num_q_heads;
    AttendEntry entry;
    entry.q = Bytes(heads * kKvRowBytes);
    entry.out = const_cast<uint8_t*>(Bytes(heads * 128 * static_cast<int64_t>(SizeOf(out_dtype))));
    if (q_len % 2 == 1)
      entry.lse = reinterpret_cast<float*>(const_cast<uint8_t*>(Bytes(heads * 4)));
    entry.pages = pages;
    entry.q_start = kv_end - q_len;
    entry.q_len = q_len;
    entry.kv_end = kv_end;
    entry.layer = static_cast<uint32_t>(random_() % spec_.num_layers);
    entry.kv_head_begin = head_begin;
    entry.kv_head_end = head_end;
    entry.out_dtype = out_dtype;
    entry.row_class = row_class;
    entry.causal = q_len % 3 != 0;
    batch.rows.push_back(entry);
  }

  void Copy(PageId source, PageId target) {
    auto slots = std::make_unique<std::vector<uint32_t>>(spec_.num_layers);
    for (uint32_t& count : *slots) count = static_cast<uint32_t>(random_() % 6);
    batch.copies.push_back({source, target, slots->data()});
    slots_.push_back(std::move(slots));
  }

  Batch batch;

 private:
  const AttentionSpec spec_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<std::vector<const PageId*>>> chunks_;
  std::vector<std::unique_ptr<std::vector<PageId>>> ids_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> bytes_;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> slots_;
};

void FillBatch(OwnedBatch& owned) {
  const PageList shared = owned.Pages(700);
  const PageList other = owned.Pages(3000);
  for (int i = 0; i < 9; ++i) owned.Copy(100 + i, 200 + 3 * i);
  owned.Copy(200, 300);
  owned.Append(shared, 1, 37, 300);
  owned.Append(other, 0, 0, 1);
  owned.Append(other, 2, 900, 2100);
  owned.Rows(shared, 1, 700, DType::kBFloat16, RowClass::kDecode);
  owned.Rows(other, 16, 3000, DType::kFloat32, RowClass::kDecode);
  owned.Rows(other, 333, 2999, DType::kBFloat16, RowClass::kPrefill);
  owned.Rows(owned.Pages(0), 3, 0, DType::kFloat16, RowClass::kDecode);
  owned.Rows(shared, 0, 10, DType::kBFloat16, RowClass::kPrefill);
  owned.Rows(shared, 65, 650, DType::kFloat32, RowClass::kPrefill, 1, 2);
  owned.Rows(other, 7, 2000, DType::kBFloat16, RowClass::kDecode, 0, 1);
}

// Steps of a batch, built one after another in the same memory.
class StepBuilderTest : public testing::TestWithParam<int64_t> {
 protected:
  StepBuilderTest()
      : spec_(TestSpec()),
        pool_(PoolOf(spec_, 2000, nullptr)),
        score_(ScoreOf(spec_, nullptr)),
        limits_{GetParam(), GetParam(), int64_t{8} << 20, 4},
        owned_(spec_, 5),
        cutter_(limits_),
        image_(static_cast<size_t>(GetParam()) + 256),
        outputs_(static_cast<size_t>(GetParam()) + 256) {
    FillBatch(owned_);
  }

  static uint8_t* Aligned(std::vector<uint8_t>& bytes) {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (128 - address % 128) % 128;
  }

  void Build(size_t index) {
    std::fill(image_.begin(), image_.end(), kPoison);
    memory_ = {Aligned(image_), Aligned(image_), Aligned(outputs_)};
    BuildStep({&spec_, &pool_, &score_, limits_, &copier_}, owned_.batch, cutter_.step(index),
              memory_, &step_);
    ASSERT_LE(step_.upload_bytes, limits_.upload_bytes);
    ASSERT_LE(step_.output_bytes, limits_.output_bytes);
    ASSERT_TRUE(std::all_of(memory_.host_image + step_.upload_bytes, &*image_.end(),
                            [](uint8_t byte) { return byte == kPoison; }));
    used_.assign(static_cast<size_t>(step_.upload_bytes), false);
  }

  // Marks bytes of the image as those of one thing.
  void Claim(const void* begin, int64_t bytes) {
    const int64_t first = static_cast<const uint8_t*>(begin) - memory_.host_image;
    ASSERT_GE(first, 0);
    ASSERT_LE(first + bytes, step_.upload_bytes);
    for (int64_t i = first; i < first + bytes; ++i) {
      ASSERT_FALSE(used_[static_cast<size_t>(i)]) << "byte " << i << " belongs to two things";
      used_[static_cast<size_t>(i)] = true;
    }
  }

  // What nobody claimed is alignment: fewer than 128 bytes in a row, and nothing was written there.
  void ExpectNothingUnclaimed() {
    int64_t run = 0;
    for (size_t i = 0; i < used_.size(); ++i) {
      run = used_[i] ? 0 : run + 1;
      ASSERT_LT(run, 128) << "at " << i;
    }
  }

  void ExpectIds(const int32_t* table, const PageList& pages, int64_t tokens) {
    ASSERT_EQ(reinterpret_cast<uintptr_t>(table) % 16, 0u);
    for (int64_t i = 0; i * spec_.page_size < tokens; ++i) {
      ASSERT_EQ(table[i], pages[static_cast<int32_t>(i)]) << i;
    }
  }

  void CheckCopies(std::vector<std::pair<PageId, PageId>>& done) {
    size_t next = 0;
    for (const int run : step_.copy_runs) {
      for (int i = 0; i < run; ++i, ++next) {
        const PageCopyRecord& record = step_.copies[next];
        const PageCopy& copy = owned_.batch.copies[done.size()];
        done.push_back({record.source, record.target});
        ASSERT_EQ(record.source, copy.source);
        ASSERT_EQ(record.target, copy.target);
        ASSERT_EQ(std::memcmp(record.slots_per_layer, copy.slots_per_layer, 12), 0);
        Claim(&record, sizeof(record));
        Claim(record.slots_per_layer, 12);
      }
    }
  }

  // Tokens appended so far, by (append, token).
  void CheckAppends(const StepPieces& pieces, std::map<std::pair<size_t, int32_t>, int>& done) {
    const int64_t row = int64_t{2} * kKvRowBytes;
    for (size_t i = 0; i < pieces.appends.size(); ++i) {
      const AppendRecord& record = step_.append_records[i];
      const Piece& piece = pieces.appends[i];
      const AppendEntry& entry = owned_.batch.appends[piece.entry];
      Claim(&record, sizeof(record));
      Claim(record.k, record.count * row);
      Claim(record.v, record.count * row);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(record.k) % 16, 0u);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(record.v) % 16, 0u);
      ASSERT_EQ(std::memcmp(record.k, static_cast<const uint8_t*>(entry.k) + piece.first * row,
                            record.count * row),
                0);
      ASSERT_EQ(std::memcmp(record.v, static_cast<const uint8_t*>(entry.v) + piece.first * row,
                            record.count * row),
                0);
      ASSERT_EQ(record.layer, static_cast<int32_t>(entry.layer));
      ASSERT_EQ(record.begin, static_cast<int32_t>(entry.begin) + piece.first);
      ExpectIds(record.page_table, entry.pages, record.begin + record.count);
      for (int32_t t = 0; t < record.count; ++t) ++done[{piece.entry, piece.first + t}];
    }
    std::map<int, int> covered;
    for (int i = 0; i < step_.num_append_items; ++i) {
      Claim(&step_.append_items[i], sizeof(AppendItem));
      covered[step_.append_items[i].record] += kAppendSlots;
    }
    for (const auto& [record, slots] : covered) {
      EXPECT_GE(slots, step_.append_records[record].count);
      EXPECT_LT(slots, step_.append_records[record].count + kAppendSlots);
    }
  }

  // Checks the record of a piece; true where it is a decode row.
  void CheckRecord(const EntryRecord& record, const Piece& piece) {
    const AttendEntry& entry = owned_.batch.rows[piece.entry];
    ASSERT_EQ(record.q_len, piece.count);
    ASSERT_EQ(record.q_start, entry.q_start + piece.first);
    ASSERT_EQ(record.kv_end, entry.kv_end);
    ASSERT_EQ(record.layer, static_cast<int32_t>(entry.layer));
    ASSERT_EQ(record.is_causal, entry.causal);
    ASSERT_EQ(record.writes_fp32, entry.out_dtype != DType::kBFloat16);
    ASSERT_EQ(record.lse == nullptr, entry.lse == nullptr);
    ExpectIds(record.page_table, entry.pages, record.kv_end);
    const int64_t row_bytes = int64_t{6} * kKvRowBytes;
    const auto* q = static_cast<const uint8_t*>(step_.q) + record.q_row * row_bytes;
    for (int32_t row = 0; row < record.q_len; ++row) {
      const int64_t begin = row * row_bytes + record.kv_head_begin * 3 * kKvRowBytes;
      const int64_t size = (record.kv_head_end - record.kv_head_begin) * 3 * kKvRowBytes;
      Claim(q + begin, size);
      ASSERT_EQ(std::memcmp(q + begin,
                            static_cast<const uint8_t*>(entry.q) + piece.first * row_bytes + begin,
                            static_cast<size_t>(size)),
                0);
    }
  }

  void CheckRows(const StepPieces& pieces, std::map<std::pair<size_t, int32_t>, int>& done) {
    size_t next_decode = 0, next_forward = 0;
    for (const Piece& piece : pieces.rows) {
      const bool is_decode = owned_.batch.rows[piece.entry].row_class == RowClass::kDecode;
      const EntryRecord& record =
          is_decode ? step_.decode_entries[next_decode++] : step_.forward_entries[next_forward++];
      Claim(&record, sizeof(record));
      CheckRecord(record, piece);
      for (int32_t row = 0; row < piece.count; ++row) ++done[{piece.entry, piece.first + row}];
    }
    for (size_t i = 0; i < step_.decode_plan.items.size(); ++i) {
      Claim(&step_.decode_items[i], sizeof(DecodeItem));
      const DecodeItem& item = step_.decode_items[i];
      ASSERT_LT(item.entry, static_cast<int32_t>(next_decode));
      ASSERT_EQ(item.page_table, step_.decode_entries[item.entry].page_table);
    }
    for (size_t i = 0; i < step_.decode_plan.combines.size(); ++i) {
      Claim(&step_.combines[i], sizeof(CombineItem));
    }
    for (int32_t i = 0; i < step_.num_forward_items; ++i) {
      Claim(&step_.forward_items[i], sizeof(ForwardItem));
      ASSERT_LT(step_.forward_items[i].entry, static_cast<int32_t>(next_forward));
    }
    ASSERT_LE(DecodeWorkspaceBytes(step_.decode_plan.num_partials, 2, 8), limits_.workspace_bytes);
  }

  const AttentionSpec spec_;
  const KvPool pool_;
  const LaunchScore score_;
  const StepLimits limits_;
  OwnedBatch owned_;
  BatchCutter cutter_;
  BulkCopier copier_{3};
  std::vector<uint8_t> image_;
  std::vector<uint8_t> outputs_;
  StepMemory memory_;
  Step step_;
  std::vector<bool> used_;
};

TEST_P(StepBuilderTest, EveryTokenAndRowIsInOneStepAndEveryAddressLeadsToItsBytes) {
  ASSERT_TRUE(cutter_.Cut(spec_, score_, owned_.batch).ok());
  EXPECT_GE(cutter_.num_steps(), GetParam() < 50'000 ? 100u : 1u);
  std::vector<std::pair<PageId, PageId>> copies;
  std::map<std::pair<size_t, int32_t>, int> tokens, rows;
  for (size_t i = 0; i < cutter_.num_steps(); ++i) {
    SCOPED_TRACE(i);
    const StepPieces& pieces = cutter_.step(i);
    // Copies are all before appends, appends before rows.
    EXPECT_TRUE(pieces.num_copies == 0 || tokens.empty());
    EXPECT_TRUE(pieces.appends.empty() || rows.empty());
    ASSERT_NO_FATAL_FAILURE(Build(i));
    ASSERT_NO_FATAL_FAILURE(CheckCopies(copies));
    ASSERT_NO_FATAL_FAILURE(CheckAppends(pieces, tokens));
    ASSERT_NO_FATAL_FAILURE(CheckRows(pieces, rows));
  }
  EXPECT_EQ(copies.size(), owned_.batch.copies.size());
  size_t num_tokens = 0, num_rows = 0;
  for (const AppendEntry& entry : owned_.batch.appends) num_tokens += entry.count;
  for (const AttendEntry& entry : owned_.batch.rows) num_rows += static_cast<size_t>(entry.q_len);
  EXPECT_EQ(tokens.size(), num_tokens);
  EXPECT_EQ(rows.size(), num_rows);
  for (const auto& [token, times] : tokens) EXPECT_EQ(times, 1);
  for (const auto& [row, times] : rows) EXPECT_EQ(times, 1);
}

TEST_P(StepBuilderTest, ResultsComeBackWholeAndNowhereElse) {
  ASSERT_TRUE(cutter_.Cut(spec_, score_, owned_.batch).ok());
  for (size_t i = 0; i < cutter_.num_steps(); ++i) {
    ASSERT_NO_FATAL_FAILURE(Build(i));
    std::set<int64_t> places;
    for (const RowResult& result : step_.results) {
      EXPECT_EQ(result.out_offset % 16, 0);
      EXPECT_TRUE(places.insert(result.out_offset).second);
      if (result.lse == nullptr) continue;
      EXPECT_TRUE(places.insert(result.lse_offset).second);
    }
    for (const RowResult& result : step_.results) {
      const int64_t size = static_cast<int64_t>(SizeOf(result.dtype));
      const int64_t heads = int64_t{result.rows} * 6;
      auto* const out = static_cast<uint8_t*>(result.out);
      const std::vector<uint8_t> before(out, out + heads * 128 * size);
      const float value = static_cast<float>(places.size());
      for (int64_t n = 0; n < heads * 128; ++n) {
        const DType stored = result.dtype == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
        StoreFromFloat(stored, memory_.device_outputs + result.out_offset, n, value);
      }
      HandBack({&result, 1}, memory_.device_outputs, &copier_);
      for (int64_t n = 0; n < heads * 128; ++n) {
        const int64_t head = n / 128 % 6;
        if (head >= result.head_begin && head < result.head_end) {
          ASSERT_EQ(LoadAsFloat(result.dtype, out, n), value) << n;
        } else {
          ASSERT_EQ(std::memcmp(out + n * size, &before[static_cast<size_t>(n * size)], size), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Staging, StepBuilderTest,
                         testing::Values(int64_t{24} << 10, int64_t{100} << 10, int64_t{8} << 20));

TEST(BulkCopierTest, CopiesEveryByteWhateverTheSizes) {
  std::mt19937_64 random(9);
  BulkCopier copier(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint8_t> source(1 + random() % 3'000'000);
    for (size_t i = 0; i < source.size(); i += 7) source[i] = static_cast<uint8_t>(random());
    std::vector<uint8_t> target(source.size(), 0);
    for (size_t first = 0; first < source.size();) {
      const size_t size = std::min(source.size() - first, size_t{1} + random() % 400'000);
      copier.Add(&target[first], &source[first], static_cast<int64_t>(size));
      first += size;
    }
    copier.Finish();
    ASSERT_TRUE(target == source);
  }
}

TEST(BatchCutterTest, WhatFitsIsOneStepAndSequencesShareTheirTables) {
  const AttentionSpec spec = TestSpec();
  OwnedBatch owned(spec, 3);
  const PageList pages = owned.Pages(50);
  for (int i = 0; i < 20; ++i) {
    owned.Append(pages, static_cast<uint32_t>(i % 3), 40, 10);
    owned.Rows(pages, 1, 50, DType::kBFloat16, RowClass::kDecode);
  }
  BatchCutter cutter({int64_t{16} << 20, int64_t{16} << 20, int64_t{64} << 20, 132});
  ASSERT_TRUE(cutter.Cut(spec, ScoreOf(spec, nullptr), owned.batch).ok());
  ASSERT_EQ(cutter.num_steps(), 1u);
  EXPECT_EQ(cutter.step(0).tables.size(), 1u);
}

TEST(BatchCutterTest, NothingToDoIsNoStep) {
  const AttentionSpec spec = TestSpec();
  OwnedBatch owned(spec, 3);
  owned.Rows(owned.Pages(5), 0, 5, DType::kBFloat16, RowClass::kPrefill);
  BatchCutter cutter({1 << 20, 1 << 20, 8 << 20, 4});
  ASSERT_TRUE(cutter.Cut(spec, ScoreOf(spec, nullptr), owned.batch).ok());
  EXPECT_EQ(cutter.num_steps(), 0u);
}

TEST(BatchCutterTest, WhatCanNeverFitIsRefusedByField) {
  const AttentionSpec spec = TestSpec();
  BatchCutter cutter({1 << 20, 1 << 20, 8 << 20, 4});
  const LaunchScore score = ScoreOf(spec, nullptr);
  OwnedBatch many_pages(spec, 3);
  many_pages.Rows(many_pages.Pages(2'000'000), 20, 2'000'000, DType::kBFloat16, RowClass::kPrefill);
  const absl::Status refused = cutter.Cut(spec, score, many_pages.batch);
  EXPECT_EQ(ReasonOf(refused), Reason::kTooLarge) << refused;
  EXPECT_EQ(FieldOf(refused), "kv_end");
  OwnedBatch long_decode(spec, 3);
  long_decode.Rows(long_decode.Pages(10), 1, (1 << 21) + 1, DType::kBFloat16, RowClass::kDecode);
  EXPECT_EQ(FieldOf(cutter.Cut(spec, score, long_decode.batch)), "kv_end");
}

}  // namespace
}  // namespace attn::cuda
