// Cuts an AttendRequest into parts that a server's limits let through.
//
// Small items are packed together in order. An item that fits no message alone is cut by rows: a
// causal prefill (as many query rows as new keys) into appending chunks; anything else into
// append-only chunks and read-only chunks with explicit positions, which gives the same rows.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attn/client/attend.h"
#include "attn/client/server_info.h"

namespace attn::client {

// One message's worth. Parts are sent one after the other; their rows of q, and so of out, follow
// one another.
struct AttendPart {
  std::vector<AttendItem> items;  // append tokens filled in
  size_t first_item = 0;          // of items[0] in the request
  // Piece of an item that is cut: has this one item. If it fails, the request ends here.
  bool is_piece = false;
  absl::Span<const std::byte> q;
  absl::Span<const std::byte> k;
  absl::Span<const std::byte> v;
};

// INVALID if the tensors do not hold a whole number of bytes per row. Usually one part. Pieces of
// an item have tokens derived from the item's own, so that a repeat is recognised piece by piece.
absl::StatusOr<std::vector<AttendPart>> SplitRequest(const AttendRequest& request,
                                                     const Limits& limits);

}  // namespace attn::client
