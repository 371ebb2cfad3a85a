// What a call weighs for admission: its items, and the bytes of its tensors in and out.
#include "server/core/call.h"

#include <algorithm>

namespace attn::server {
namespace {

struct ItemCount {
  size_t operator()(const AttendCall& call) const { return call.items.size(); }
  size_t operator()(const OpenCall& call) const { return call.items.size(); }
  size_t operator()(const ForkCall& call) const { return call.items.size(); }
  size_t operator()(const ReorderCall& call) const { return call.targets.size(); }
  size_t operator()(const TruncateCall& call) const { return call.items.size(); }
  size_t operator()(const CloseCall& call) const { return call.sequences.size(); }
  size_t operator()(const DescribeCall& call) const { return call.sequences.size(); }
  size_t operator()(const ListCall&) const { return 1; }
  size_t operator()(const RenewCall&) const { return 1; }
  size_t operator()(const DeclareModelCall&) const { return 1; }
  size_t operator()(const RemoveModelCall&) const { return 1; }
  size_t operator()(const StreamEndedCall&) const { return 1; }
};

}  // namespace

size_t Call::num_items() const { return std::max<size_t>(1, std::visit(ItemCount{}, request)); }

size_t Call::num_bytes() const {
  const auto* attend = std::get_if<AttendCall>(&request);
  if (attend == nullptr || attend->borrowed) return 0;
  const size_t rows = static_cast<size_t>(attend->total_q) * attend->num_q_heads;
  const size_t out = rows * attend->head_dim_v * SizeOf(attend->out_dtype);
  const size_t lse = attend->return_lse ? rows * sizeof(float) : 0;
  return attend->q.size() + attend->k.size() + attend->v.size() + out + lse;
}

}  // namespace attn::server
