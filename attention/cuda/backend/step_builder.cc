#include "attention/cuda/backend/step_builder.h"

#include <cstring>

#include "attention/cuda/forward/plan.h"
#include "attention/plan/entry_cost.h"
#include "attn/base/check.h"

namespace attn::cuda {
namespace {

void CopyIds(const PageTable& table, int32_t* target) {
  const PageList& pages = table.pages;
  const int64_t per_chunk = int64_t{1} << pages.chunk_log2;
  for (int64_t first = 0; first < table.num_pages; first += per_chunk) {
    const int64_t count = std::min<int64_t>(per_chunk, table.num_pages - first);
    std::memcpy(target + first, pages.chunks[first >> pages.chunk_log2],
                static_cast<size_t>(count) * sizeof(PageId));
  }
}

class StepBuilder {
 public:
  StepBuilder(const StepContext& context, const Batch& batch, const StepPieces& pieces,
              const StepMemory& memory, Step* step)
      : context_(context),
        spec_(*context.spec),
        batch_(batch),
        pieces_(pieces),
        memory_(memory),
        step_(*step),
        image_(memory.host_image, memory.device_image, context.limits.upload_bytes) {}

  void Build() {
    WriteTables();
    WriteCopies();
    WriteAppends();
    step_.output_bytes = 0;
    step_.results.clear();
    step_.work = {};
    q_ = QuerySection();
    WriteRows(RowClass::kDecode);
    WriteRows(RowClass::kPrefill);
    context_.copier->Finish();
    step_.upload_bytes = image_.used();
    ATTN_CHECK(step_.output_bytes <= context_.limits.output_bytes, "outputs of ",
               step_.output_bytes, " bytes");
  }

 private:
  int64_t kv_row_bytes() const { return int64_t{spec_.num_kv_heads} * kKvRowBytes; }
  int64_t q_row_bytes() const { return int64_t{spec_.num_q_heads} * kKvRowBytes; }

  void WriteTables() {
    int64_t total = 0;
    constexpr int64_t kAlignedIds = kPieceAlignment / sizeof(int32_t);
    for (const PageTable& table : pieces_.tables) total += AlignedUp(table.num_pages, kAlignedIds);
    const InImage<int32_t> ids = image_.Section<int32_t>(static_cast<size_t>(total));
    int64_t next = 0;
    tables_.clear();
    for (const PageTable& table : pieces_.tables) {
      CopyIds(table, ids.host + next);
      tables_.push_back(ids.device + next);
      next += AlignedUp(table.num_pages, kAlignedIds);
    }
  }

  void WriteCopies() {
    step_.copy_runs.clear();
    if (pieces_.num_copies == 0) return;
    const InImage<uint32_t> slots = image_.Section<uint32_t>(pieces_.num_copies * spec_.num_layers);
    const InImage<PageCopyRecord> records = image_.Section<PageCopyRecord>(pieces_.num_copies);
    for (size_t i = 0; i < pieces_.num_copies; ++i) {
      const PageCopy& copy = batch_.copies[pieces_.first_copy + i];
      std::memcpy(slots.host + i * spec_.num_layers, copy.slots_per_layer,
                  spec_.num_layers * sizeof(uint32_t));
      records.host[i] = {copy.source, copy.target, slots.device + i * spec_.num_layers};
    }
    step_.copies = records.device;
    step_.copy_runs = IndependentRuns(absl::MakeConstSpan(records.host, pieces_.num_copies));
  }

  void WriteAppends() {
    step_.num_append_items = 0;
    if (pieces_.appends.empty()) return;
    int64_t tokens = 0;
    int32_t items = 0;
    for (const Piece& piece : pieces_.appends) {
      tokens += piece.count;
      items += (piece.count + kAppendSlots - 1) / kAppendSlots;
    }
    const InImage<AppendRecord> records = image_.Section<AppendRecord>(pieces_.appends.size());
    const InImage<AppendItem> item = image_.Section<AppendItem>(static_cast<size_t>(items));
    InImage<uint8_t> bytes =
        image_.Section<uint8_t>(static_cast<size_t>(2 * tokens * kv_row_bytes()));
    for (size_t i = 0; i < pieces_.appends.size(); ++i) {
      const Piece& piece = pieces_.appends[i];
      records.host[i] = WriteTokens(piece, &bytes);
      for (int32_t first = 0; first < piece.count; first += kAppendSlots) {
        item.host[step_.num_append_items++] = {static_cast<int32_t>(i), first};
      }
    }
    step_.append_records = records.device;
    step_.append_items = item.device;
  }

  AppendRecord WriteTokens(const Piece& piece, InImage<uint8_t>* bytes) const {
    const AppendEntry& entry = batch_.appends[piece.entry];
    const int64_t offset = piece.first * kv_row_bytes();
    const int64_t size = piece.count * kv_row_bytes();
    AppendRecord record;
    record.k = bytes->device;
    record.v = bytes->device + size;
    record.page_table = tables_[piece.table];
    record.layer = static_cast<int32_t>(entry.layer);
    record.begin = static_cast<int32_t>(entry.begin) + piece.first;
    record.count = piece.count;
    context_.copier->Add(bytes->host, static_cast<const uint8_t*>(entry.k) + offset, size);
    context_.copier->Add(bytes->host + size, static_cast<const uint8_t*>(entry.v) + offset, size);
    bytes->host += 2 * size;
    bytes->device += 2 * size;
    return record;
  }

  InImage<uint8_t> QuerySection() {
    step_.total_q = 0;
    for (const Piece& piece : pieces_.rows) step_.total_q += piece.count;
    const InImage<uint8_t> q =
        image_.Section<uint8_t>(static_cast<size_t>(step_.total_q * q_row_bytes()));
    step_.q = q.device;
    return q;
  }

  // Records, queries and work items of one class.
  void WriteRows(RowClass row_class) {
    size_t count = 0;
    for (const Piece& piece : pieces_.rows) {
      count += batch_.rows[piece.entry].row_class == row_class;
    }
    const InImage<EntryRecord> records = image_.Section<EntryRecord>(count);
    size_t next = 0;
    for (const Piece& piece : pieces_.rows) {
      if (batch_.rows[piece.entry].row_class != row_class) continue;
      records.host[next++] = WriteEntry(piece);
    }
    const absl::Span<const EntryRecord> entries(records.host, count);
    if (row_class == RowClass::kDecode) {
      PlanDecodeRows(entries, records.device);
    } else {
      PlanForwardRows(entries, records.device);
    }
  }

  EntryRecord WriteEntry(const Piece& piece) {
    const AttendEntry& entry = batch_.rows[piece.entry];
    AddWork(piece, entry);
    const RowResult& result = AddResult(piece, entry);
    WriteQueries(piece, entry, result);
    EntryRecord record;
    record.page_table = tables_[piece.table];
    record.out = memory_.device_outputs + result.out_offset;
    if (entry.lse != nullptr) {
      record.lse = reinterpret_cast<float*>(memory_.device_outputs + result.lse_offset);
    }
    record.q_row = next_q_row_;
    record.q_start = entry.q_start + piece.first;
    record.q_len = piece.count;
    record.kv_end = entry.kv_end;
    record.layer = static_cast<int32_t>(entry.layer);
    record.kv_head_begin = static_cast<int16_t>(entry.kv_head_begin);
    record.kv_head_end = static_cast<int16_t>(entry.kv_head_end);
    record.is_causal = entry.causal;
    record.uses_sinks = entry.use_sinks;
    record.writes_fp32 = entry.out_dtype != DType::kBFloat16;
    next_q_row_ += piece.count;
    return record;
  }

  void AddWork(const Piece& piece, AttendEntry entry) {
    entry.q_start += piece.first;
    entry.q_len = piece.count;
    const Cost cost = plan::CostOf(spec_, entry);
    if (entry.row_class == RowClass::kDecode) {
      step_.work.decode_bytes += cost.moved_bytes;
    } else {
      step_.work.forward_flops += cost.attend_flops;
    }
  }

  const RowResult& AddResult(const Piece& piece, const AttendEntry& entry) {
    const auto group_size = static_cast<int32_t>(spec_.group_size());
    const int64_t heads = int64_t{piece.count} * spec_.num_q_heads;
    const int64_t first = int64_t{piece.first} * spec_.num_q_heads;
    const bool is_fp32 = entry.out_dtype != DType::kBFloat16;
    RowResult result;
    result.out_offset = TakeOutput(heads * kKvHeadDim * (is_fp32 ? 4 : 2));
    result.out = static_cast<uint8_t*>(entry.out) +
                 first * kKvHeadDim * static_cast<int64_t>(SizeOf(entry.out_dtype));
    if (entry.lse != nullptr) {
      result.lse_offset = TakeOutput(heads * static_cast<int64_t>(sizeof(float)));
      result.lse = entry.lse + first;
    }
    result.rows = piece.count;
    result.num_q_heads = static_cast<int32_t>(spec_.num_q_heads);
    result.head_begin = static_cast<int32_t>(entry.kv_head_begin) * group_size;
    result.head_end = static_cast<int32_t>(entry.kv_head_end) * group_size;
    result.dtype = entry.out_dtype;
    step_.results.push_back(result);
    return step_.results.back();
  }

  int64_t TakeOutput(int64_t bytes) {
    const int64_t offset = step_.output_bytes;
    step_.output_bytes += AlignedUp(bytes);
    return offset;
  }

  // Of a part of the heads only theirs: nobody reads the others.
  void WriteQueries(const Piece& piece, const AttendEntry& entry, const RowResult& result) {
    const int64_t row_bytes = q_row_bytes();
    const auto* source = static_cast<const uint8_t*>(entry.q) + piece.first * row_bytes;
    uint8_t* target = q_.host + next_q_row_ * row_bytes;
    const int64_t begin = int64_t{result.head_begin} * kKvRowBytes;
    const int64_t size = int64_t{result.head_end} * kKvRowBytes - begin;
    if (size == row_bytes) {
      context_.copier->Add(target, source, piece.count * row_bytes);
      return;
    }
    for (int32_t row = 0; row < piece.count; ++row) {
      context_.copier->Add(target + row * row_bytes + begin, source + row * row_bytes + begin,
                           size);
    }
  }

  template <typename T>
  const T* WriteItems(const std::vector<T>& items) {
    const InImage<T> section = image_.Section<T>(items.size());
    std::copy(items.begin(), items.end(), section.host);
    return section.device;
  }

  void PlanDecodeRows(absl::Span<const EntryRecord> entries, const EntryRecord* device) {
    DecodePlan& plan = step_.decode_plan;
    PlanDecode(*context_.pool, *context_.score, static_cast<int>(spec_.num_q_heads), entries,
               context_.limits.num_sms, &plan);
    step_.decode_entries = device;
    step_.decode_items = WriteItems(plan.items);
    step_.combines = WriteItems(plan.combines);
  }

  void PlanForwardRows(absl::Span<const EntryRecord> entries, const EntryRecord* device) {
    const std::vector<ForwardItem> items =
        PlanForward(*context_.pool, *context_.score, static_cast<int>(spec_.num_q_heads), entries);
    step_.forward_entries = device;
    step_.forward_items = WriteItems(items);
    step_.num_forward_items = static_cast<int32_t>(items.size());
  }

  const StepContext& context_;
  const AttentionSpec& spec_;
  const Batch& batch_;
  const StepPieces& pieces_;
  const StepMemory& memory_;
  Step& step_;
  ImageWriter image_;
  std::vector<const int32_t*> tables_;  // on the device
  InImage<uint8_t> q_;
  int64_t next_q_row_ = 0;
};

}  // namespace

void BuildStep(const StepContext& context, const Batch& batch, const StepPieces& pieces,
               const StepMemory& memory, Step* step) {
  StepBuilder(context, batch, pieces, memory, step).Build();
}

}  // namespace attn::cuda
