// SHA-256 over a canonical form of a model's spec, equal on all servers. The form is written down
// in server/rpc/README.md; protobuf's own bytes are not used, because they are not canonical.
#pragma once

#include <string>

#include "attn/v1/attention.pb.h"

namespace attn::server {

// The bytes that are hashed. `spec` has every default filled in; page_size is left out.
std::string CanonicalForm(const v1::ModelSpec& spec);
// 32 bytes.
std::string FingerprintOf(const v1::ModelSpec& spec);

}  // namespace attn::server
