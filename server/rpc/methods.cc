#include "server/rpc/methods.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/request_check.h"
#include "server/rpc/attend_codec.h"
#include "server/rpc/decode.h"
#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/model_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {

// ---------------------------------------------------------------------------------------- attend

absl::StatusOr<Decoded> AttendMethod::Decode(Request* request, const RpcContext& context) {
  const Nanos begin = context.clock->Now();
  ATTN_ASSIGN_OR_RETURN(AttendCall call, DecodeAttend(request, context.ForDecoding(nullptr)));
  Decoded decoded(std::move(call));
  decoded.input = context.clock->Now() - begin;
  return decoded;
}

void AttendMethod::Encode(const RpcContext&, const std::vector<RefusedItem>&, Call* call,
                          Response* out) {
  EncodeAttend(std::get<AttendCall>(call->request), &std::get<AttendResult>(call->result), out);
}

// ------------------------------------------------------------------------------------- lifecycle

absl::StatusOr<Decoded> OpenMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeOpen(*request, context.ForDecoding(nullptr));
}

void OpenMethod::Encode(const RpcContext& context, const std::vector<RefusedItem>& refused,
                        Call* call, Response* out) {
  EncodeOpen(std::get<OpenCall>(call->request), std::get<OpenResult>(call->result), refused,
             context.server_epoch, out);
}

absl::StatusOr<Decoded> ForkMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeFork(*request, context.ForDecoding(nullptr));
}

void ForkMethod::Encode(const RpcContext&, const std::vector<RefusedItem>&, Call* call,
                        Response* out) {
  EncodeFork(std::get<ForkResult>(call->result), out);
}

absl::StatusOr<Decoded> ReorderMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeReorder(*request, context.ForDecoding(nullptr));
}

void ReorderMethod::Encode(const RpcContext&, const std::vector<RefusedItem>&, Call*, Response*) {}

absl::StatusOr<Decoded> TruncateMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeTruncate(*request, context.ForDecoding(nullptr));
}

void TruncateMethod::Encode(const RpcContext&, const std::vector<RefusedItem>&, Call* call,
                            Response* out) {
  EncodeTruncate(std::get<TruncateResult>(call->result), out);
}

absl::StatusOr<Decoded> CloseMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeClose(*request, context.ForDecoding(nullptr));
}

void CloseMethod::Encode(const RpcContext&, const std::vector<RefusedItem>& refused, Call* call,
                         Response* out) {
  EncodeClose(std::get<CloseResult>(call->result), refused, out);
}

absl::StatusOr<Decoded> DescribeMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeDescribe(*request, context.ForDecoding(nullptr));
}

void DescribeMethod::Encode(const RpcContext& context, const std::vector<RefusedItem>& refused,
                            Call* call, Response* out) {
  EncodeDescribe(std::get<DescribeResult>(call->result), refused, *context.registry, out);
}

absl::StatusOr<Decoded> RenewMethod::Decode(Request* request, const RpcContext& context) {
  return DecodeRenew(*request, context.ForDecoding(nullptr));
}

void RenewMethod::Encode(const RpcContext&, const std::vector<RefusedItem>&, Call* call,
                         Response* out) {
  EncodeRenew(std::get<RenewResult>(call->result), out);
}

// ---------------------------------------------------------------------------------------- models

absl::StatusOr<Decoded> DeclareModelMethod::Decode(Request* request, const RpcContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(*request, ""));
  if (!request->has_spec()) return MakeError(Reason::kInvalid, "spec", "got none, want a spec");
  const SupportsSpec supports = [&context](const AttentionSpec& spec) {
    return context.engine->Supports(spec);
  };
  ATTN_ASSIGN_OR_RETURN(ModelDefinition definition,
                        DecodeModelSpec(std::move(*request->mutable_spec()), context.limits,
                                        *context.registry, supports, "spec"));
  return Decoded(DeclareModelCall{std::move(definition)});
}

void DeclareModelMethod::Encode(const RpcContext& context, const std::vector<RefusedItem>&,
                                Call* call, Response* out) {
  const auto& result = std::get<DeclareModelResult>(call->result);
  EncodeModelInfo(*result.model, out->mutable_model());
  out->set_already_declared(result.already_declared);
  context.health.AddModel(result.model->definition.name);
}

absl::StatusOr<Decoded> RemoveModelMethod::Decode(Request* request, const RpcContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(*request, ""));
  if (context.registry->FindByName(request->name()) == nullptr) {
    return UnknownModel("name", request->name());
  }
  return Decoded(RemoveModelCall{request->name()});
}

void RemoveModelMethod::Encode(const RpcContext& context, const std::vector<RefusedItem>&,
                               Call* call, Response*) {
  context.health.RemoveModel(std::get<RemoveModelCall>(call->request).name);
}

absl::Status GetModelMethod::Answer(const Request& request, const RpcContext& context,
                                    Response* out) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, ""));
  const ModelPtr model = context.registry->FindByName(request.name());
  if (model == nullptr) return UnknownModel("name", request.name());
  EncodeModelInfo(*model, out->mutable_model());
  return absl::OkStatus();
}

absl::Status ListModelsMethod::Answer(const Request& request, const RpcContext& context,
                                      Response* out) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, ""));
  const size_t max = PageSize(request.max_models(), context.limits.max_models_per_page);
  const std::vector<ModelPtr> models = context.registry->List(request.page_token(), max + 1);
  for (size_t i = 0; i < models.size() && i < max; ++i) {
    EncodeModelInfo(*models[i], out->add_models());
  }
  if (models.size() > max) out->set_next_page_token(models[max - 1]->definition.name);
  return absl::OkStatus();
}

absl::Status ComputeMethod::Answer(const Request&, const RpcContext&, Response*) {
  return MakeError(Reason::kUnsupported, "compute",
                   "attention without a cache is not built here; want Attend or AttendStream");
}

}  // namespace attn::server
