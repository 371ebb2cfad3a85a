// Which version of the server this is.
#pragma once

namespace attn::server {

// "1.2.3", that of the build.
const char* ServerVersion();

}  // namespace attn::server
