// A program that would talk to a server: it links, and is told that nobody listens.
#include <cstdio>

#include "attn/client/client.h"

int main() {
  const auto client =
      attn::client::Client::Connect("unix:/nonexistent/attn.sock", {.connect_timeout_ms = 200});
  std::printf("%s\n", client.status().ToString().c_str());
  return client.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
}
