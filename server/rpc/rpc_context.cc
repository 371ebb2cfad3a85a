#include "server/rpc/rpc_context.h"

#include "attn/base/error.h"
#include "server/rpc/version.h"

namespace attn::server {
namespace {

// Another server, or this one after a restart, takes about this long to be found.
constexpr uint32_t kRetryAfterMs = 1000;

}  // namespace

MetricSources RpcContext::Sources() const {
  return {.engine = engine,
          .registry = registry,
          .border = &border,
          .open_streams = streams.size(),
          .calls_in_flight = gate.size(),
          .serving = health.serving(),
          .draining = gate.closed(),
          .version = ServerVersion()};
}

void RpcContext::NoteRefused(absl::string_view request, uint64_t request_id,
                             const absl::Status& status) const {
  border.refused_calls[ReasonOf(status)].Add(1);
  events->CallRefused(request, request_id, status);
}

void RpcContext::NoteRefusedItems(const std::vector<RefusedItem>& items) const {
  for (const RefusedItem& item : items) border.refused_items[ReasonOf(item.status)].Add(1);
}

absl::Status DrainingError() {
  return MakeError(Reason::kDraining, "", "the server is stopping: go elsewhere", kRetryAfterMs);
}

}  // namespace attn::server
