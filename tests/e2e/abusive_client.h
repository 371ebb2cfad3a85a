// A client that does everything a client should not: short deadlines, cancellations, streams that
// nobody reads, connections cut in the middle of a message. Meant for a process of its own, to be
// killed or stopped at any time.
#pragma once

#include <cstdint>
#include <string>

namespace attn::test {

// Never returns. `target` is 127.0.0.1:PORT.
[[noreturn]] void RunAbusiveClient(const std::string& target, uint64_t seed);

}  // namespace attn::test
