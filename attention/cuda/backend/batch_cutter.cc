#include "attention/cuda/backend/batch_cutter.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "attention/cuda/append/append_kv.h"
#include "attention/cuda/append/copy_pages.h"
#include "attention/cuda/backend/step_image.h"
#include "attention/cuda/decode/args.h"
#include "attention/cuda/decode/launch.h"
#include "attention/cuda/forward/args.h"
#include "attention/cuda/kv_pool.h"
#include "attention/cuda/tile/row_map.h"
#include "attn/base/dtype.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::cuda {
namespace {

constexpr int64_t kMaxSections = 16;
constexpr int32_t kForwardTileRows = 128;

// Extents of the longest kind with keys that rows of the entry see.
int64_t LongExtentsOf(const LaunchScore& score, const AttendEntry& entry) {
  const score::VisibleRange range = score.RangeOf(entry.causal, entry.kv_end);
  return range.KeysOfRows(entry.q_start, entry.q_start + entry.q_len - 1).size() /
             kLongestExtentKeys +
         2;
}

// How often `unit` fits into `left`; no limit if it is free.
int64_t TimesIn(int64_t left, int64_t unit) {
  return unit == 0 ? std::numeric_limits<int64_t>::max() : left / unit;
}

}  // namespace

absl::Status BatchCutter::Cut(const AttentionSpec& spec, const LaunchScore& score,
                              const Batch& batch) {
  spec_ = &spec;
  score_ = &score;
  num_steps_ = 0;
  left_ = {};
  ATTN_RETURN_IF_ERROR(CutCopies(batch.copies.size()));
  ATTN_RETURN_IF_ERROR(CutAppends(batch.appends));
  return CutRows(batch.rows);
}

int32_t BatchCutter::PagesFor(int64_t tokens) const {
  return static_cast<int32_t>((tokens + spec_->page_size - 1) / spec_->page_size);
}

int64_t BatchCutter::QueryRowBytes() const { return int64_t{spec_->num_q_heads} * kKvRowBytes; }

absl::Status BatchCutter::CutCopies(size_t num_copies) {
  Price price;
  price.unit.upload = AlignedUp(sizeof(PageCopyRecord)) + AlignedUp(spec_->num_layers * 4);
  for (size_t copy = 0; copy < num_copies;) {
    if (num_steps_ == 0 || Fitting(price) < 1) NewStep();
    const int64_t count = std::min(Fitting(price), static_cast<int64_t>(num_copies - copy));
    if (count < 1) {
      return MakeError(Reason::kTooLarge, "num_layers", "a page copy does not fit the staging");
    }
    StepPieces& step = steps_[num_steps_ - 1];
    step.first_copy = copy;
    step.num_copies = static_cast<size_t>(count);
    Spend(price, count);
    copy += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status BatchCutter::CutAppends(const std::vector<AppendEntry>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const AppendEntry& entry = entries[i];
    Price price;
    price.fixed.upload = AlignedUp(sizeof(AppendRecord));
    price.unit.upload = int64_t{2} * spec_->num_kv_heads * kKvRowBytes + sizeof(AppendItem);
    ATTN_RETURN_IF_ERROR(Add(&StepPieces::appends, "kv_new_len", i,
                             static_cast<int32_t>(entry.count), kAppendSlots, entry.pages,
                             PagesFor(int64_t{entry.begin} + entry.count), price));
  }
  return absl::OkStatus();
}

BatchCutter::Price BatchCutter::PriceOf(const AttendEntry& entry) const {
  Price price;
  const bool is_fp32 = entry.out_dtype != DType::kBFloat16;
  price.fixed.upload = AlignedUp(sizeof(EntryRecord));
  price.fixed.output = 2 * kPieceAlignment;
  price.unit.upload = QueryRowBytes();
  price.unit.output = QueryRowBytes() * (is_fp32 ? 2 : 1) + int64_t{spec_->num_q_heads} * 4;
  if (entry.row_class == RowClass::kPrefill) {
    price.unit.upload += (entry.kv_head_end - entry.kv_head_begin) * int64_t{sizeof(ForwardItem)};
    return price;
  }
  const int64_t group_size = spec_->group_size();
  const int64_t extents = LongExtentsOf(*score_, entry);
  const int64_t row_blocks = group_size / kDecodeRows + 1;
  price.unit.upload += row_blocks * extents * int64_t{sizeof(DecodeItem)} +
                       group_size * int64_t{sizeof(CombineItem)};
  price.unit.workspace =
      DecodeWorkspaceBytes(static_cast<int32_t>(row_blocks * extents),
                           static_cast<int32_t>(spec_->num_kv_heads), kDecodeRows);
  return price;
}

absl::Status BatchCutter::CutRows(const std::vector<AttendEntry>& entries) {
  const int32_t whole = std::max(1, kForwardTileRows / static_cast<int32_t>(spec_->group_size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    const AttendEntry& entry = entries[i];
    if (entry.q_len == 0 || entry.kv_head_begin >= entry.kv_head_end) continue;
    const bool is_decode = entry.row_class == RowClass::kDecode;
    if (is_decode && entry.kv_end > kMaxDecodeKeys) {
      return MakeError(Reason::kTooLarge, "kv_end",
                       absl::StrCat("got ", entry.kv_end, ", the CUDA backend decodes over up to ",
                                    kMaxDecodeKeys, " keys"));
    }
    ATTN_RETURN_IF_ERROR(Add(&StepPieces::rows, "kv_end", i, entry.q_len, is_decode ? 1 : whole,
                             entry.pages, PagesFor(entry.kv_end), PriceOf(entry)));
  }
  return absl::OkStatus();
}

absl::Status BatchCutter::Add(std::vector<Piece> StepPieces::*list, const char* field, size_t entry,
                              int32_t wanted, int32_t whole, const PageList& pages,
                              int32_t num_pages, Price price) {
  const int64_t table_bytes = AlignedUp(int64_t{num_pages} * sizeof(PageId));
  const int64_t fixed_bytes = price.fixed.upload;
  for (int32_t first = 0; first < wanted;) {
    if (num_steps_ == 0) NewStep();
    price.fixed.upload = fixed_bytes + (HasTable(pages, num_pages) ? 0 : table_bytes);
    int64_t count = Fitting(price);
    if (count < std::min(whole, wanted - first)) {
      NewStep();
      price.fixed.upload = fixed_bytes + table_bytes;
      count = Fitting(price);
    }
    if (count < 1) {
      return MakeError(Reason::kTooLarge, field,
                       absl::StrCat("got ", num_pages, " pages, which do not fit the staging of ",
                                    limits_.upload_bytes, " bytes"));
    }
    if (count >= wanted - first) {
      count = wanted - first;
    } else if (count >= whole) {
      count -= count % whole;
    }
    const size_t table = TableFor(pages, num_pages);
    (steps_[num_steps_ - 1].*list).push_back({entry, first, static_cast<int32_t>(count), table});
    Spend(price, count);
    first += static_cast<int32_t>(count);
  }
  return absl::OkStatus();
}

int64_t BatchCutter::Fitting(const Price& price) const {
  return std::min({TimesIn(left_.upload - price.fixed.upload, price.unit.upload),
                   TimesIn(left_.output - price.fixed.output, price.unit.output),
                   TimesIn(left_.workspace - price.fixed.workspace, price.unit.workspace)});
}

void BatchCutter::Spend(const Price& price, int64_t units) {
  left_.upload -= price.fixed.upload + units * price.unit.upload;
  left_.output -= price.fixed.output + units * price.unit.output;
  left_.workspace -= price.fixed.workspace + units * price.unit.workspace;
}

// What does not depend on the pieces is taken off at once: the alignment of sections, and the items
// and partial results of a launch too small for long extents, which has at most two CTAs per SM.
StepPieces& BatchCutter::NewStep() {
  const int32_t short_items = 2 * limits_.num_sms;
  left_ = {limits_.upload_bytes - kMaxSections * kSectionAlignment -
               short_items * int64_t{sizeof(DecodeItem)},
           limits_.output_bytes,
           limits_.workspace_bytes - DecodeWorkspaceBytes(short_items, 1, kDecodeRows)};
  table_of_.clear();
  if (steps_.size() == num_steps_) steps_.emplace_back();
  StepPieces& step = steps_[num_steps_++];
  step.first_copy = step.num_copies = 0;
  step.tables.clear();
  step.appends.clear();
  step.rows.clear();
  return step;
}

bool BatchCutter::HasTable(const PageList& pages, int32_t num_pages) const {
  const auto known = table_of_.find(pages.chunks);
  return known != table_of_.end() &&
         steps_[num_steps_ - 1].tables[known->second].num_pages >= num_pages;
}

size_t BatchCutter::TableFor(const PageList& pages, int32_t num_pages) {
  std::vector<PageTable>& tables = steps_[num_steps_ - 1].tables;
  const auto [known, is_new] = table_of_.try_emplace(pages.chunks, tables.size());
  if (!is_new && tables[known->second].num_pages >= num_pages) return known->second;
  known->second = tables.size();
  tables.push_back({pages, num_pages});
  return known->second;
}

}  // namespace attn::cuda
