#include "server/rpc/attend_item.h"

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"

namespace attn::server {
namespace {

constexpr uint32_t kKnownFlags = v1::ITEM_FLAG_NON_CAUSAL | v1::ITEM_FLAG_APPEND_AFTER |
                                 v1::ITEM_FLAG_REWIND | v1::ITEM_FLAG_NO_SINK_LOGITS;
static_assert(static_cast<uint32_t>(kItemNonCausal) == v1::ITEM_FLAG_NON_CAUSAL);
static_assert(static_cast<uint32_t>(kItemAppendAfter) == v1::ITEM_FLAG_APPEND_AFTER);
static_assert(static_cast<uint32_t>(kItemRewind) == v1::ITEM_FLAG_REWIND);
static_assert(static_cast<uint32_t>(kItemNoSinkLogits) == v1::ITEM_FLAG_NO_SINK_LOGITS);

std::string At(absl::string_view array, int index) { return FieldAt{array, index}.Path(); }

absl::Status CheckFlags(const AttendItem& item, int index) {
  if ((item.flags & ~kKnownFlags) != 0) {
    return MakeError(Reason::kUnsupported, At("flags", index),
                     absl::StrCat("got ", item.flags, ", want bits of ", kKnownFlags));
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
                                 const DecodeContext& context) {
  if (previous != nullptr && previous->model != nullptr && !item.sequence.is_alias() &&
      !previous->sequence.is_alias() &&
      SlotOf(SequenceId(item.sequence.value)) == SlotOf(SequenceId(previous->sequence.value))) {
    return previous->model;
  }
  return ResolveModel(item.sequence.value, context.registry, context.aliases,
                      {"sequence_ids", index});
}

absl::Status DecodeItem(int index, const AttendItem* previous, const DecodeContext& context,
                        AttendItem* item) {
  absl::StatusOr<ModelPtr> model = ModelOf(*item, index, previous, context);
  if (!model.ok()) return std::move(model).status();
  item->model = *std::move(model);
  ATTN_RETURN_IF_ERROR(CheckLayer(*item, index));
  ATTN_RETURN_IF_ERROR(CheckFlags(*item, index));
  return CheckLengths(*item, index, context.limits);
}

}  // namespace

void DecodeItems(const v1::AttendRequest& request, const DecodeContext& context,
                 std::span<AttendItem> items) {
  const absl::Status stale = CheckEpoch(request.server_epoch(), context.server_epoch);
  for (size_t i = 0; i < items.size(); ++i) {
    const int index = static_cast<int>(i);
    AttendItem& item = items[i];
    item.sequence = SequenceRef{request.sequence_ids(index)};
    item.layer = EntryOf(request.layers(), index, 0u);
    item.expected_len = item.kv_new_len == 0 ? 0 : EntryOf(request.expected_lens(), index, 0u);
    item.flags = EntryOf(request.flags(), index, 0u);
    item.append_token = EntryOf(request.append_tokens(), index, uint64_t{0});
    if (request.q_starts_size() > 0) item.q_start = EntryOf(request.q_starts(), index, 0u);
    item.refused =
        stale.ok() ? DecodeItem(index, i == 0 ? nullptr : &items[i - 1], context, &item) : stale;
  }
}

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

}  // namespace attn::server
