#include "server/rpc/attend_item.h"

#include "server/core/attend_check.h"

namespace attn::server {

static_assert(kKnownItemFlags == (v1::ITEM_FLAG_NON_CAUSAL | v1::ITEM_FLAG_APPEND_AFTER |
                                  v1::ITEM_FLAG_REWIND | v1::ITEM_FLAG_NO_SINK_LOGITS));
static_assert(static_cast<uint32_t>(kItemNonCausal) == v1::ITEM_FLAG_NON_CAUSAL);
static_assert(static_cast<uint32_t>(kItemAppendAfter) == v1::ITEM_FLAG_APPEND_AFTER);
static_assert(static_cast<uint32_t>(kItemRewind) == v1::ITEM_FLAG_REWIND);
static_assert(static_cast<uint32_t>(kItemNoSinkLogits) == v1::ITEM_FLAG_NO_SINK_LOGITS);

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
    item.refused = stale.ok() ? CheckItem(context.registry, context.aliases, context.limits, index,
                                          i == 0 ? nullptr : &items[i - 1], &item)
                              : stale;
  }
}

}  // namespace attn::server
