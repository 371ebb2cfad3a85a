// Rules of requests that stand in no single item: counts, names, pairs. Both borders, server/rpc
// and server/embed, ask here before a call goes to the engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/core/call.h"
#include "server/core/wire_limits.h"

namespace attn::server {

// INVALID unless 1 <= count <= limits.max_items_per_request.
absl::Status CheckItemCount(uint64_t count, const WireLimits& limits, absl::string_view field);

// `name` of a client as messages quote it: of a long one the first 128 bytes, cut between
// characters, because text that is no UTF-8 cannot be sent.
std::string Quoted(absl::string_view name);

// What a request gets whose `field` names no declared model.
absl::Status UnknownModel(absl::string_view field, absl::string_view name);

// INVALID unless `owner` has 1 to limits.max_owner_bytes bytes.
absl::Status CheckOwner(absl::string_view owner, const WireLimits& limits);

// INVALID if all forks together make more than limits.max_items_per_request children.
absl::Status CheckNumChildren(uint64_t total, const WireLimits& limits);
// INVALID for a fork that makes none.
absl::Status CheckForkItem(uint32_t num_children, int index);

// INVALID unless there is one source for each target.
absl::Status CheckReorderCounts(uint64_t num_targets, uint64_t num_sources,
                                const WireLimits& limits);
// INVALID unless targets are distinct and each has the model of its source. The slots are those of
// the call's sequences.
absl::Status CheckReorderPairs(const ReorderCall& call, std::span<const ModelSlot> target_slots,
                               std::span<const ModelSlot> source_slots);

}  // namespace attn::server
