// What every decoder needs to know, and what it gives back beside the request of the core.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"
#include "server/core/sequence_names.h"
#include "server/core/wire_limits.h"

namespace attn::server {

struct DecodeContext {
  const WireLimits& limits;
  const ModelRegistry& registry;
  uint64_t server_epoch = 0;
  // Of the stream; null for a unary call.
  AliasNotes* aliases = nullptr;
};

// An item that was at fault and is not part of the call: `item` counts all items of the message.
struct RefusedItem {
  uint32_t item = 0;
  absl::Status status;
};

struct Decoded {
  Decoded() = default;
  explicit Decoded(Request r) : request(std::move(r)) {}

  Request request;
  // In item order. Only for requests whose items have no `refused` of their own; the encoder puts
  // them back in place.
  std::vector<RefusedItem> refused;
  // Noted as defined already; to be marked as failed if the call does not get into the queue.
  std::vector<AliasRange> aliases;
  // Time spent on decoding; for the answer's timing.
  Nanos input = 0;
};

// Entries of a page of a list, at most `limit`; `asked` by the client, 0: it leaves it to the
// server. To ask for one more than that tells whether there is a next page.
inline size_t PageSize(uint32_t asked, uint32_t limit) {
  return asked == 0 ? limit : std::min(asked, limit);
}

// STALE_SEQUENCE if `epoch` is set and not this server's.
absl::Status CheckEpoch(uint64_t epoch, uint64_t server_epoch);

}  // namespace attn::server
