// Models and server facts between the public structs and the wire.
#pragma once

#include "attn/client/model.h"
#include "attn/client/server_info.h"
#include "attn/v1/attention.pb.h"

namespace attn::client {

void ToWire(const ModelSpec& spec, v1::ModelSpec* wire);
ModelInfo FromWire(const v1::ModelInfo& wire);
ServerInfo FromWire(const v1::GetServerInfoResponse& wire);

}  // namespace attn::client
