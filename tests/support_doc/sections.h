// The parts of docs/support.md. Every word about what is computed or refused is an answer of the
// code that is asked in production.
#pragma once

#include <string>

namespace attn::test {

// What each backend says to specs.
std::string SpecSection();
// What a server says to calls.
std::string WireSection();
// Each golden case, by backend.
std::string GoldenSection();

}  // namespace attn::test
