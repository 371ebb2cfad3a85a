#include "server/core/attend_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/attention/attention_spec.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::server {
namespace {

std::string At(absl::string_view array, int index) { return FieldAt{array, index}.Path(); }

absl::Status CheckFlags(const AttendItem& item, int index) {
  if ((item.flags & ~kKnownItemFlags) != 0) {
    return MakeError(Reason::kUnsupported, At("flags", index),
                     absl::StrCat("got ", item.flags, ", want bits of ", kKnownItemFlags));
  }
  if (item.kv_new_len == 0 && (item.flags & (kItemRewind | kItemAppendAfter)) != 0) {
    return MakeError(Reason::kInvalid, At("flags", index),
                     absl::StrCat("got ", item.flags, " with kv_new_len 0, want no ",
                                  (item.flags & kItemRewind) != 0 ? "REWIND" : "APPEND_AFTER",
                                  " on an item that appends nothing"));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const AttendItem& item, int index, const WireLimits& limits) {
  if (item.q_len == 0 && item.kv_new_len == 0) {
    return MakeError(Reason::kInvalid, At("q_lens", index),
                     "got 0 with kv_new_len 0, want at least one of them above 0");
  }
  if (item.kv_new_len == 0) return absl::OkStatus();
  if (uint64_t{item.expected_len} + item.kv_new_len > limits.max_sequence_len) {
    return MakeError(
        Reason::kInvalid, At("expected_lens", index),
        absl::StrCat("got ", item.expected_len, " with kv_new_len ", item.kv_new_len,
                     ", want a sum of at most ", limits.max_sequence_len, " (max_sequence_len)"));
  }
  if (item.append_token == 0) {
    return MakeError(Reason::kInvalid, At("append_tokens", index),
                     "got 0, want a random number other than 0 for an item that appends");
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(const AttendItem& item, int index) {
  const uint32_t num_layers = item.model->definition.num_layers;
  if (item.layer < num_layers) return absl::OkStatus();
  return MakeError(Reason::kInvalid, At("layers", index),
                   absl::StrCat("got ", item.layer, ", want 0 to ", num_layers - 1, " of model ",
                                item.model->definition.name));
}

// The previous item's model serves again while the slot stays: a look-up takes a lock.
absl::StatusOr<ModelPtr> ModelOf(const AttendItem& item, int index, const AttendItem* previous,
                                 const ModelRegistry& registry, const AliasNotes* aliases) {
  if (previous != nullptr && previous->model != nullptr && !item.sequence.is_alias() &&
      !previous->sequence.is_alias() &&
      SlotOf(SequenceId(item.sequence.value)) == SlotOf(SequenceId(previous->sequence.value))) {
    return previous->model;
  }
  return ResolveModel(item.sequence.value, registry, aliases, {"sequence_ids", index});
}

// INVALID naming item `other_item` unless both have equal activation dtype, heads and head dims.
absl::Status CheckSameGeometry(const AttentionSpec& first, size_t first_item,
                               const AttentionSpec& other, size_t other_item) {
  const auto text = [](const AttentionSpec& spec) {
    return absl::StrCat(NameOf(spec.activation_dtype), ", ", spec.num_q_heads, "/",
                        spec.num_kv_heads, " heads, head dims ", spec.head_dim_qk, "/",
                        spec.head_dim_v);
  };
  if (first.activation_dtype == other.activation_dtype && first.num_q_heads == other.num_q_heads &&
      first.num_kv_heads == other.num_kv_heads && first.head_dim_qk == other.head_dim_qk &&
      first.head_dim_v == other.head_dim_v) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalid, absl::StrCat("layers[", other_item, "]"),
                   absl::StrCat("got ", text(other), ", want that of item ", first_item, " (",
                                text(first), "): send two requests"));
}

}  // namespace

absl::Status CheckItem(const ModelRegistry& registry, const AliasNotes* aliases,
                       const WireLimits& limits, int index, const AttendItem* previous,
                       AttendItem* item) {
  absl::StatusOr<ModelPtr> model = ModelOf(*item, index, previous, registry, aliases);
  if (!model.ok()) return std::move(model).status();
  item->model = *std::move(model);
  ATTN_RETURN_IF_ERROR(CheckLayer(*item, index));
  ATTN_RETURN_IF_ERROR(CheckFlags(*item, index));
  return CheckLengths(*item, index, limits);
}

absl::StatusOr<RowTotals> PlaceRows(const WireLimits& limits, AttendCall* call) {
  RowTotals totals;
  for (AttendItem& item : call->items) {
    item.q_row = static_cast<int64_t>(totals.q);
    item.kv_row = static_cast<int64_t>(totals.kv_new);
    totals.q += item.q_len;
    totals.kv_new += item.kv_new_len;
  }
  const uint64_t limit = limits.max_q_rows_per_request;
  if (totals.q > limit || totals.kv_new > limit) {
    return MakeError(Reason::kInvalid, totals.q > limit ? "q_lens" : "kv_new_lens",
                     absl::StrCat("got a sum of ", totals.q > limit ? totals.q : totals.kv_new,
                                  ", want at most ", limit, " (max_q_rows_per_request)"));
  }
  call->total_q = static_cast<int64_t>(totals.q);
  return totals;
}

absl::StatusOr<bool> AgreeOnGeometry(AttendCall* call) {
  const AttentionSpec* first = nullptr;
  size_t first_item = 0;
  for (size_t i = 0; i < call->items.size(); ++i) {
    const AttendItem& item = call->items[i];
    if (item.model == nullptr || item.layer >= item.model->definition.num_layers) continue;
    const AttentionSpec& spec = item.model->GroupOf(item.layer).spec;
    if (first == nullptr) {
      first = &spec;
      first_item = i;
      continue;
    }
    ATTN_RETURN_IF_ERROR(CheckSameGeometry(*first, first_item, spec, i));
  }
  if (first == nullptr) return false;
  call->activation_dtype = first->activation_dtype;
  call->num_q_heads = first->num_q_heads;
  call->num_kv_heads = first->num_kv_heads;
  call->head_dim_qk = first->head_dim_qk;
  call->head_dim_v = first->head_dim_v;
  return true;
}

std::string TensorShape::Text() const {
  return absl::StrCat("[", rows, ", ", heads, ", ", head_dim, "]");
}

absl::Status CheckTensorBytes(uint64_t bytes, const TensorShape& want, absl::string_view field) {
  if (bytes == want.num_bytes()) return absl::OkStatus();
  return MakeError(Reason::kInvalid, field,
                   absl::StrCat("got ", bytes, " bytes, want ", want.num_bytes(), " for ",
                                want.Text(), " of ", NameOf(want.dtype)));
}

}  // namespace attn::server
