// One struct per RPC: its messages, how a request becomes a call, and how a result becomes an
// answer. A method whose answer needs no engine has Answer in place of Decode and Encode.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/rpc/decode.h"
#include "server/rpc/rpc_context.h"

namespace attn::server {

struct AttendMethod {
  using Request = v1::AttendRequest;
  using Response = v1::AttendResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct OpenMethod {
  using Request = v1::OpenSequencesRequest;
  using Response = v1::OpenSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct ForkMethod {
  using Request = v1::ForkSequencesRequest;
  using Response = v1::ForkSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct ReorderMethod {
  using Request = v1::ReorderSequencesRequest;
  using Response = v1::ReorderSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct TruncateMethod {
  using Request = v1::TruncateSequencesRequest;
  using Response = v1::TruncateSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct CloseMethod {
  using Request = v1::CloseSequencesRequest;
  using Response = v1::CloseSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct DescribeMethod {
  using Request = v1::DescribeSequencesRequest;
  using Response = v1::DescribeSequencesResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct RenewMethod {
  using Request = v1::RenewLeaseRequest;
  using Response = v1::RenewLeaseResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct DeclareModelMethod {
  using Request = v1::DeclareModelRequest;
  using Response = v1::DeclareModelResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct RemoveModelMethod {
  using Request = v1::RemoveModelRequest;
  using Response = v1::RemoveModelResponse;
  static absl::StatusOr<Decoded> Decode(Request* request, const RpcContext& context);
  static void Encode(const RpcContext& context, const std::vector<RefusedItem>& refused, Call* call,
                     Response* out);
};

struct GetServerInfoMethod {
  using Request = v1::GetServerInfoRequest;
  using Response = v1::GetServerInfoResponse;
  static absl::Status Answer(const Request& request, const RpcContext& context, Response* out);
};

struct GetModelMethod {
  using Request = v1::GetModelRequest;
  using Response = v1::GetModelResponse;
  static absl::Status Answer(const Request& request, const RpcContext& context, Response* out);
};

struct ListModelsMethod {
  using Request = v1::ListModelsRequest;
  using Response = v1::ListModelsResponse;
  static absl::Status Answer(const Request& request, const RpcContext& context, Response* out);
};

struct ComputeMethod {
  using Request = v1::ComputeRequest;
  using Response = v1::ComputeResponse;
  // Always UNSUPPORTED.
  static absl::Status Answer(const Request& request, const RpcContext& context, Response* out);
};

}  // namespace attn::server
