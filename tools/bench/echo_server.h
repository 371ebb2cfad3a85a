// A bare gRPC stream server: to every message the same prepared bytes. What a stream costs without
// anything of ours.
#pragma once

#include <string>

namespace attn::bench {

// Prints "listening port=N" and serves until SIGTERM.
int RunEchoServer(const std::string& answer_file);

}  // namespace attn::bench
