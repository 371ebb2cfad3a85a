#include "tests/support/paged_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/status_macros.h"
#include "tests/support/paged_memory.h"

namespace attn::test {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr char kGuard = 0x5a;
constexpr char kPoison = static_cast<char>(0xff);  // repeated, a NaN of every dtype

// Bytes between two guards, at an odd address if wanted, all poison at first.
class GuardedBytes {
 public:
  GuardedBytes(size_t size, bool is_misaligned)
      : offset_(kGuardBytes + (is_misaligned ? 1 : 0)),
        size_(size),
        bytes_(offset_ + size + kGuardBytes, kGuard) {
    std::fill_n(data(), size, kPoison);
  }
  GuardedBytes(const std::vector<char>& content, bool is_misaligned)
      : GuardedBytes(content.size(), is_misaligned) {
    std::copy(content.begin(), content.end(), data());
  }

  char* data() { return bytes_.data() + offset_; }
  std::vector<char> content() { return {data(), data() + size_}; }
  bool is_intact() const {
    const auto is_guard = [](char byte) { return byte == kGuard; };
    const auto begin = bytes_.begin();
    const auto content_end = begin + static_cast<std::ptrdiff_t>(offset_ + size_);
    return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(offset_), is_guard) &&
           std::all_of(content_end, bytes_.end(), is_guard);
  }

 private:
  size_t offset_;
  size_t size_;
  std::vector<char> bytes_;
};

// Everything one item owns while it runs.
struct RunningItem {
  GuardedBytes q;
  GuardedBytes k;
  GuardedBytes v;
  GuardedBytes out;
  GuardedBytes lse;
  PageIds pages;
};

void AddAppends(const AttentionSpec& spec, const CaseItem& item, const Layout& layout,
                RunningItem& running, std::vector<AppendEntry>& appends) {
  const size_t token_bytes = spec.num_kv_heads * SizeOf(spec.activation_dtype);
  const int32_t piece = layout.append_piece > 0 ? layout.append_piece : item.kv_len;
  for (int32_t begin = 0; begin < item.kv_len; begin += piece) {
    const size_t first = static_cast<size_t>(begin) * token_bytes;
    appends.push_back({.k = running.k.data() + first * spec.head_dim_qk,
                       .v = running.v.data() + first * spec.head_dim_v,
                       .pages = running.pages.view(),
                       .layer = item.layer,
                       .begin = static_cast<uint32_t>(begin),
                       .count = static_cast<uint32_t>(std::min(piece, item.kv_len - begin))});
  }
}

// The next row after `row` where an entry may begin: the position is a multiple of `cut_rows`.
int32_t NextCut(int64_t q_start, int32_t row, int32_t cut_rows) {
  const int64_t position = q_start + row;
  const int64_t past = ((position % cut_rows) + cut_rows) % cut_rows;
  return row + static_cast<int32_t>(cut_rows - past);
}

void AddRows(const AttentionSpec& spec, const CaseItem& item, const Layout& layout,
             RunningItem& running, std::vector<AttendEntry>& rows) {
  const uint32_t heads_per_entry = layout.cut_kv_heads ? 1 : spec.num_kv_heads;
  int32_t row = 0;
  do {  // once even if the item has no rows: a part of no rows is legal
    const int32_t next = layout.cut_rows == 0
                             ? item.q_len
                             : std::min(item.q_len, NextCut(item.q_start, row, layout.cut_rows));
    const size_t first = static_cast<size_t>(row) * spec.num_q_heads;
    for (uint32_t head = 0; head < spec.num_kv_heads; head += heads_per_entry) {
      AttendEntry entry;
      entry.q = running.q.data() + first * spec.head_dim_qk * SizeOf(spec.activation_dtype);
      entry.out = running.out.data() + first * spec.head_dim_v * SizeOf(item.out_dtype);
      if (item.wants_lse) {
        entry.lse = reinterpret_cast<float*>(running.lse.data() + first * sizeof(float));
      }
      entry.pages = running.pages.view();
      entry.q_start = item.q_start + row;
      entry.q_len = next - row;
      entry.kv_end = item.kv_len;
      entry.layer = item.layer;
      entry.kv_head_begin = head;
      entry.kv_head_end = head + heads_per_entry;
      entry.out_dtype = item.out_dtype;
      entry.row_class = layout.row_class.value_or(ClassOf(static_cast<uint32_t>(item.q_len)));
      entry.causal = item.causal;
      entry.use_sinks = item.use_sinks;
      rows.push_back(entry);
    }
    row = next;
  } while (row < item.q_len);
}

int32_t PagesNeeded(const Problem& problem) {
  int32_t num_pages = 0;
  const int32_t page_size = static_cast<int32_t>(problem.spec.page_size);
  for (const CaseItem& item : problem.items) num_pages += (item.kv_len + page_size - 1) / page_size;
  return num_pages;
}

absl::StatusOr<ItemOutput> Collect(size_t index, const CaseItem& item, RunningItem& running) {
  for (const GuardedBytes* bytes : {&running.out, &running.lse}) {
    if (!bytes->is_intact()) {
      return absl::InternalError(absl::StrCat("wrote outside an output of item ", index));
    }
  }
  ItemOutput output{running.out.content(), {}};
  if (item.wants_lse) {
    const std::vector<char> bytes = running.lse.content();
    output.lse.resize(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(output.lse.data(), bytes.data(), bytes.size());
  }
  return output;
}

}  // namespace

std::vector<double> ItemOutput::OutAsDoubles(DType dtype) const {
  std::vector<double> values(out.size() / SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadAsFloat(dtype, out.data(), static_cast<int64_t>(i));
  }
  return values;
}

bool operator==(const ItemOutput& a, const ItemOutput& b) {
  return a.out == b.out && a.lse.size() == b.lse.size() &&
         (a.lse.empty() ||
          std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0);
}

absl::StatusOr<std::vector<ItemOutput>> RunOnBackend(Backend& backend, const Problem& problem,
                                                     const Layout& layout) {
  const AttentionSpec& spec = problem.spec;
  ATTN_ASSIGN_OR_RETURN(
      PagedMemory memory,
      PagedMemory::Create(backend, spec, PagesNeeded(problem) + layout.spare_pages,
                          layout.page_seed));
  std::vector<RunningItem> running;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const ItemTensors& tensors = problem.tensors[i];
    const bool odd = layout.is_misaligned;
    running.push_back({{tensors.q, odd},
                       {tensors.k, odd},
                       {tensors.v, odd},
                       {problem.OutElements(i) * SizeOf(problem.items[i].out_dtype), odd},
                       {problem.LseElements(i) * sizeof(float), false},
                       {memory.TakeFor(problem.items[i].kv_len), layout.table_chunk_log2}});
  }
  Batch batch;
  for (size_t n = 0; n < running.size(); ++n) {
    const size_t i = layout.reversed ? running.size() - 1 - n : n;
    AddAppends(spec, problem.items[i], layout, running[i], batch.appends);
    AddRows(spec, problem.items[i], layout, running[i], batch.rows);
  }
  if (!layout.appends_in_same_launch) {
    Batch appends_only;
    std::swap(appends_only.appends, batch.appends);
    ATTN_RETURN_IF_ERROR(Execute(backend, memory.store(), appends_only));
  }
  ATTN_RETURN_IF_ERROR(Execute(backend, memory.store(), batch));
  std::vector<ItemOutput> outputs;
  for (size_t i = 0; i < running.size(); ++i) {
    ATTN_ASSIGN_OR_RETURN(ItemOutput output, Collect(i, problem.items[i], running[i]));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

}  // namespace attn::test
