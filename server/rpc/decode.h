// What every decoder needs to know, and what it gives back beside the request of the core.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"
#include "server/rpc/limits.h"
#include "server/rpc/sequence_names.h"

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

// INVALID unless 1 <= count <= limits.max_items_per_request.
absl::Status CheckItemCount(uint64_t count, const WireLimits& limits, absl::string_view field);

// `name` of a client as messages quote it: of a long one the first 128 bytes, cut between
// characters, because text that is no UTF-8 cannot be sent.
std::string Quoted(absl::string_view name);

// STALE_SEQUENCE if `epoch` is set and not this server's.
absl::Status CheckEpoch(uint64_t epoch, uint64_t server_epoch);

}  // namespace attn::server
