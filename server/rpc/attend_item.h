// One item of an AttendRequest: its sequence, layer, lengths, flags and token. What is at fault
// here fails the item, never its neighbours; the rules are in server/core/attend_check.h.
#pragma once

#include <span>

#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/rpc/decode.h"

namespace attn::server {

// "n, 1 or 0 entries": item's entry, the one for all, or `absent`.
template <typename Repeated, typename Value>
Value EntryOf(const Repeated& values, int item, Value absent) {
  if (values.size() == 0) return absent;
  return values.Get(values.size() == 1 ? 0 : item);
}

// Fills in all but the lengths and rows, which are there already, and sets `refused`.
// REQUIRES: the counts of the request have been checked.
void DecodeItems(const v1::AttendRequest& request, const DecodeContext& context,
                 std::span<AttendItem> items);

}  // namespace attn::server
