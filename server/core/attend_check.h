// The rules of an Attend call that can be told without the engine: of one item by itself, and of
// all together. What is at fault in an item fails that item, never its neighbours.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/base/dtype.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"
#include "server/core/sequence_names.h"
#include "server/core/wire_limits.h"

namespace attn::server {

// The bits that an item's flags may have.
inline constexpr uint32_t kKnownItemFlags =
    kItemNonCausal | kItemAppendAfter | kItemRewind | kItemNoSinkLogits;

// Finds the item's model and checks layer, flags, lengths and token. `aliases` is null outside
// streams; `previous` is the item before it, or null.
// REQUIRES: all but `model` and `refused` is filled in.
absl::Status CheckItem(const ModelRegistry& registry, const AliasNotes* aliases,
                       const WireLimits& limits, int index, const AttendItem* previous,
                       AttendItem* item);

// Rows of query and of new keys in a call.
struct RowTotals {
  uint64_t q = 0;
  uint64_t kv_new = 0;
};

// Gives every item its rows, one item behind the other. INVALID above
// limits.max_q_rows_per_request. REQUIRES: the items' q_len and kv_new_len are filled in.
absl::StatusOr<RowTotals> PlaceRows(const WireLimits& limits, AttendCall* call);

// All items whose geometry is known agree in it; the call takes it. Returns whether any is known:
// if none is, every item is refused, and the tensors cannot be checked.
absl::StatusOr<bool> AgreeOnGeometry(AttendCall* call);

// [rows, heads, head_dim] of one of q, k, v, out.
struct TensorShape {
  uint64_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  DType dtype = DType::kFloat32;

  // REQUIRES: rows below 2^32, heads and head_dim within WireLimits (so that it fits 64 bits).
  uint64_t num_bytes() const { return rows * heads * head_dim * SizeOf(dtype); }
  std::string Text() const;  // "[8, 4, 64]"
};

// INVALID unless `bytes` are those of `want`.
absl::Status CheckTensorBytes(uint64_t bytes, const TensorShape& want, absl::string_view field);

}  // namespace attn::server
