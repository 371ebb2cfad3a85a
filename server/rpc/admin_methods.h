// The methods of attn.v1.Admin, in the form of methods.h.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/admin.pb.h"
#include "server/core/call.h"
#include "server/rpc/decode.h"
#include "server/rpc/rpc_context.h"

namespace attn::server {

struct GetStatsMethod {
  using Request = v1::GetStatsRequest;
  using Response = v1::GetStatsResponse;
  static absl::Status Answer(const Request& request, const RpcContext& context, Response* out);
};

struct ListSequencesMethod {
  using Request = v1::ListSequencesRequest;
  using Response = v1::ListSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

}  // namespace attn::server
