#include "server/rpc/rpc_context.h"

#include "attn/base/error.h"

namespace attn::server {
namespace {

// Another server, or this one after a restart, takes about this long to be found.
constexpr uint32_t kRetryAfterMs = 1000;

}  // namespace

absl::Status DrainingError() {
  return MakeError(Reason::kDraining, "", "the server is stopping: go elsewhere", kRetryAfterMs);
}

}  // namespace attn::server
