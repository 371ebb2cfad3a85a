// What a call with a request key asks for, as one number: a second call under the key is a repeat
// if the numbers are equal, and a client's mistake if they are not.
#pragma once

#include <cstdint>

#include "server/core/call.h"

namespace attn::server {

// Equal for repeats, also when one names a sequence by an alias and the other by its id, or wants
// other aliases for what it makes: aliases are of a stream, and a repeat may come on another one.
// Different for all else, but for a chance of 2^-64. Means nothing in another process. Engine
// thread only, like the aliases.
uint64_t FingerprintOf(const Call& call);

}  // namespace attn::server
