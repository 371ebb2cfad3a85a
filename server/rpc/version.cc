#include "server/rpc/version.h"

namespace attn::server {

const char* ServerVersion() { return ATTN_VERSION; }

}  // namespace attn::server
