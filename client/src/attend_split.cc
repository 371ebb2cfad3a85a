#include "client/src/attend_split.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/retry.h"

namespace attn::client {
namespace {

// Room for everything of a message that is neither tensor nor item.
constexpr uint64_t kEnvelopeBytes = 512;
// Upper bound of one item's fields in a request and of its outcome in an answer.
constexpr uint64_t kItemBytes = 64;

struct RowBytes {
  uint64_t q = 0;
  uint64_t k = 0;
  uint64_t v = 0;
  uint64_t out = 0;  // with lse; an upper bound
};

absl::StatusOr<uint64_t> BytesPerRow(absl::string_view name, size_t bytes, uint64_t rows) {
  if (rows == 0 ? bytes != 0 : (bytes == 0 || bytes % rows != 0)) {
    return MakeError(Reason::kInvalid, name,
                     absl::StrCat("got ", bytes, " bytes, want a multiple of the ", rows,
                                  " rows that the items name"));
  }
  return rows == 0 ? 0 : bytes / rows;
}

absl::StatusOr<RowBytes> MeasureRows(const AttendRequest& request) {
  uint64_t q_rows = 0, kv_rows = 0;
  for (const AttendItem& item : request.items) {
    q_rows += item.q_len;
    kv_rows += item.kv_new_len;
  }
  RowBytes row;
  ATTN_ASSIGN_OR_RETURN(row.q, BytesPerRow("q", request.q.size(), q_rows));
  ATTN_ASSIGN_OR_RETURN(row.k, BytesPerRow("k", request.k.size(), kv_rows));
  ATTN_ASSIGN_OR_RETURN(row.v, BytesPerRow("v", request.v.size(), kv_rows));
  const size_t size = SizeOf(request.dtype);
  const uint64_t out = row.k == 0 ? row.q : row.q * row.v / row.k;
  row.out = out / size * SizeOf(request.out_dtype.value_or(request.dtype));
  // The least head dim is 8, so a row has at most so many heads.
  if (request.return_lse) row.out += row.q / (8 * size) * sizeof(float);
  return row;
}

// Token of piece `piece` of the item whose token is `token`.
uint64_t PieceToken(uint64_t token, uint64_t piece) {
  const uint64_t derived = token + piece * 0x9e3779b97f4a7c15u;
  return derived == 0 ? 0x9e3779b97f4a7c15u : derived;
}

class Splitter {
 public:
  Splitter(const AttendRequest& request, const Limits& limits, const RowBytes& row)
      : request_(request), row_(row) {
    budget_ = limits.max_message_bytes > 2 * kEnvelopeBytes
                  ? limits.max_message_bytes - kEnvelopeBytes
                  : UINT64_MAX;
    max_items_ = limits.max_items_per_request != 0 ? limits.max_items_per_request : UINT64_MAX;
    max_rows_ = limits.max_q_rows_per_request != 0 ? limits.max_q_rows_per_request : UINT64_MAX;
  }

  absl::StatusOr<std::vector<AttendPart>> Split() && {
    for (size_t i = 0; i < request_.items.size(); ++i) {
      AttendItem item = request_.items[i];
      if (item.append_token == 0 && item.kv_new_len > 0) item.append_token = RandomKey();
      if (Fits(0, 1, item.q_len, item.kv_new_len)) {
        Pack(i, item);
      } else {
        Flush();
        ATTN_RETURN_IF_ERROR(Cut(i, item));
      }
    }
    Flush();
    return std::move(parts_);
  }

 private:
  bool Fits(uint64_t items_before, uint64_t items, uint64_t q_rows, uint64_t kv_rows) const {
    const uint64_t fields = kItemBytes * (items_before + items);
    const uint64_t up = fields + q_rows * row_.q + kv_rows * (row_.k + row_.v);
    const uint64_t down = fields + q_rows * row_.out;
    return std::max(up, down) <= budget_ && items_before + items <= max_items_ &&
           std::max(q_rows, kv_rows) <= max_rows_;
  }

  void Pack(size_t index, const AttendItem& item) {
    if (!Fits(open_.items.size(), 1, open_q_rows_ + item.q_len, open_kv_rows_ + item.kv_new_len)) {
      Flush();
    }
    if (open_.items.empty()) open_.first_item = index;
    open_.items.push_back(item);
    open_q_rows_ += item.q_len;
    open_kv_rows_ += item.kv_new_len;
  }

  void Flush() {
    if (open_.items.empty()) return;
    Emit(std::move(open_), open_q_rows_, open_kv_rows_);
    open_ = AttendPart();
    open_q_rows_ = open_kv_rows_ = 0;
  }

  // Gives the part the next rows of the tensors.
  void Emit(AttendPart part, uint64_t q_rows, uint64_t kv_rows) {
    part.q = request_.q.subspan(q_row_ * row_.q, q_rows * row_.q);
    part.k = request_.k.subspan(kv_row_ * row_.k, kv_rows * row_.k);
    part.v = request_.v.subspan(kv_row_ * row_.v, kv_rows * row_.v);
    q_row_ += q_rows;
    kv_row_ += kv_rows;
    parts_.push_back(std::move(part));
  }

  void EmitPiece(size_t index, const AttendItem& piece) {
    AttendPart part;
    part.items = {piece};
    part.first_item = index;
    part.is_piece = true;
    Emit(std::move(part), piece.q_len, piece.kv_new_len);
  }

  // Most rows of `q_share` query rows and `kv_share` new keys each that fit one message.
  absl::StatusOr<uint32_t> RowsPerPiece(uint64_t q_share, uint64_t kv_share) const {
    const uint64_t up = q_share * row_.q + kv_share * (row_.k + row_.v);
    const uint64_t per_row = std::max<uint64_t>(1, std::max(up, q_share * row_.out));
    const uint64_t rows = std::min((budget_ - kItemBytes) / per_row, max_rows_);
    if (rows == 0) {
      return MakeError(Reason::kTooLarge, "q",
                       absl::StrCat("one row takes ", per_row, " bytes, want at most ", budget_));
    }
    return static_cast<uint32_t>(std::min<uint64_t>(rows, UINT32_MAX));
  }

  absl::Status Cut(size_t index, const AttendItem& item) {
    const bool is_plain_prefill = item.q_len == item.kv_new_len && !item.q_start.has_value() &&
                                  (item.flags & (kNonCausal | kAppendAfter)) == 0;
    if (is_plain_prefill) return CutPrefill(index, item);
    const bool after = (item.flags & kAppendAfter) != 0;
    if (after && (item.flags & kRewind) != 0) {
      return MakeError(Reason::kUnsupported, absl::StrCat("items[", index, "].flags"),
                       "got REWIND with APPEND_AFTER on an item larger than a message");
    }
    if (!after) ATTN_RETURN_IF_ERROR(CutAppend(index, item));
    ATTN_RETURN_IF_ERROR(CutQueries(index, item));
    return after ? CutAppend(index, item) : absl::OkStatus();
  }

  absl::Status CutPrefill(size_t index, const AttendItem& item) {
    ATTN_ASSIGN_OR_RETURN(const uint32_t rows, RowsPerPiece(1, 1));
    for (uint32_t begin = 0; begin < item.q_len; begin += rows) {
      AttendItem piece = AppendPiece(item, begin, rows);
      piece.q_len = piece.kv_new_len;
      piece.flags |= item.flags & kNoSinkLogits;
      EmitPiece(index, piece);
      if (item.q_len - begin <= rows) break;
    }
    return absl::OkStatus();
  }

  absl::Status CutAppend(size_t index, const AttendItem& item) {
    if (item.kv_new_len == 0) return absl::OkStatus();
    ATTN_ASSIGN_OR_RETURN(const uint32_t rows, RowsPerPiece(0, 1));
    for (uint32_t begin = 0; begin < item.kv_new_len; begin += rows) {
      EmitPiece(index, AppendPiece(item, begin, rows));
      if (item.kv_new_len - begin <= rows) break;
    }
    return absl::OkStatus();
  }

  static AttendItem AppendPiece(const AttendItem& item, uint32_t begin, uint32_t rows) {
    AttendItem piece;
    piece.sequence = item.sequence;
    piece.layer = item.layer;
    piece.expected_len = item.expected_len + begin;
    piece.kv_new_len = std::min(rows, item.kv_new_len - begin);
    piece.append_token = PieceToken(item.append_token, begin);
    if (begin == 0) piece.flags = item.flags & kRewind;
    return piece;
  }

  absl::Status CutQueries(size_t index, const AttendItem& item) {
    if (item.q_len == 0) return absl::OkStatus();
    ATTN_ASSIGN_OR_RETURN(const uint32_t rows, RowsPerPiece(1, 0));
    const uint64_t end = uint64_t{item.expected_len} + item.kv_new_len;
    if (!item.q_start.has_value() && (item.kv_new_len == 0 || end < item.q_len)) {
      return MakeError(Reason::kInvalid, absl::StrCat("items[", index, "].q_start"),
                       "got none, want one for an item that is larger than a message and whose "
                       "first row's position does not follow from its append");
    }
    const uint64_t first = item.q_start.value_or(static_cast<uint32_t>(end - item.q_len));
    for (uint32_t begin = 0; begin < item.q_len; begin += rows) {
      AttendItem piece;
      piece.sequence = item.sequence;
      piece.layer = item.layer;
      piece.q_len = std::min(rows, item.q_len - begin);
      piece.q_start = static_cast<uint32_t>(first + begin);
      piece.flags = item.flags & (kNonCausal | kNoSinkLogits);
      EmitPiece(index, piece);
      if (item.q_len - begin <= rows) break;
    }
    return absl::OkStatus();
  }

  const AttendRequest& request_;
  const RowBytes row_;
  uint64_t budget_;
  uint64_t max_items_;
  uint64_t max_rows_;
  AttendPart open_;  // being packed
  uint64_t open_q_rows_ = 0;
  uint64_t open_kv_rows_ = 0;
  uint64_t q_row_ = 0;  // rows given to parts so far
  uint64_t kv_row_ = 0;
  std::vector<AttendPart> parts_;
};

}  // namespace

absl::StatusOr<std::vector<AttendPart>> SplitRequest(const AttendRequest& request,
                                                     const Limits& limits) {
  if (request.items.empty()) {
    return MakeError(Reason::kInvalid, "items", "got none, want at least 1");
  }
  ATTN_ASSIGN_OR_RETURN(const RowBytes row, MeasureRows(request));
  return Splitter(request, limits, row).Split();
}

}  // namespace attn::client
