// The services of attn.v1: each method names its struct in methods.h or admin_methods.h.
#pragma once

#include "attn/v1/admin.grpc.pb.h"
#include "attn/v1/attention.grpc.pb.h"
#include "server/rpc/rpc_context.h"

namespace attn::server {

using RawServerService = v1::Server::WithRawCallbackMethod_GetServerInfo<v1::Server::Service>;

class ServerService final : public RawServerService {
 public:
  explicit ServerService(RpcContext* context) : context_(context) {}
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* rpc,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  RpcContext* const context_;
};

using RawModelsService = v1::Models::WithRawCallbackMethod_DeclareModel<
    v1::Models::WithRawCallbackMethod_GetModel<v1::Models::WithRawCallbackMethod_ListModels<
        v1::Models::WithRawCallbackMethod_RemoveModel<v1::Models::Service>>>>;

class ModelsService final : public RawModelsService {
 public:
  explicit ModelsService(RpcContext* context) : context_(context) {}
  grpc::ServerUnaryReactor* DeclareModel(grpc::CallbackServerContext* rpc,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* rpc,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* rpc,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RemoveModel(grpc::CallbackServerContext* rpc,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;

 private:
  RpcContext* const context_;
};

using RawSequencesService = v1::Sequences::WithRawCallbackMethod_OpenSequences<
    v1::Sequences::WithRawCallbackMethod_ForkSequences<
        v1::Sequences::WithRawCallbackMethod_ReorderSequences<
            v1::Sequences::WithRawCallbackMethod_TruncateSequences<
                v1::Sequences::WithRawCallbackMethod_CloseSequences<
                    v1::Sequences::WithRawCallbackMethod_DescribeSequences<
                        v1::Sequences::WithRawCallbackMethod_RenewLease<
                            v1::Sequences::Service>>>>>>>;

class SequencesService final : public RawSequencesService {
 public:
  explicit SequencesService(RpcContext* context) : context_(context) {}
  grpc::ServerUnaryReactor* OpenSequences(grpc::CallbackServerContext* rpc,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ForkSequences(grpc::CallbackServerContext* rpc,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReorderSequences(grpc::CallbackServerContext* rpc,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* TruncateSequences(grpc::CallbackServerContext* rpc,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CloseSequences(grpc::CallbackServerContext* rpc,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DescribeSequences(grpc::CallbackServerContext* rpc,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RenewLease(grpc::CallbackServerContext* rpc,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  RpcContext* const context_;
};

using RawAttentionService =
    v1::Attention::WithRawCallbackMethod_Attend<v1::Attention::WithRawCallbackMethod_AttendStream<
        v1::Attention::WithRawCallbackMethod_Compute<v1::Attention::Service>>>;

class AttentionService final : public RawAttentionService {
 public:
  explicit AttentionService(RpcContext* context) : context_(context) {}
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* rpc,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* rpc) override;
  grpc::ServerUnaryReactor* Compute(grpc::CallbackServerContext* rpc,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;

 private:
  RpcContext* const context_;
};

using RawAdminService = v1::Admin::WithRawCallbackMethod_GetStats<
    v1::Admin::WithRawCallbackMethod_ListSequences<v1::Admin::Service>>;

class AdminService final : public RawAdminService {
 public:
  explicit AdminService(RpcContext* context) : context_(context) {}
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* rpc,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListSequences(grpc::CallbackServerContext* rpc,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  RpcContext* const context_;
};

}  // namespace attn::server
