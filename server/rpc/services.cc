#include "server/rpc/services.h"

#include "server/rpc/admin_methods.h"
#include "server/rpc/attend_stream.h"
#include "server/rpc/methods.h"
#include "server/rpc/unary_reactor.h"

namespace attn::server {

using Rpc = grpc::CallbackServerContext;
using Bytes = grpc::ByteBuffer;

grpc::ServerUnaryReactor* ServerService::GetServerInfo(Rpc* rpc, const Bytes* request,
                                                       Bytes* response) {
  return AnswerAtOnce<GetServerInfoMethod>(*context_, rpc, request, response);
}

grpc::ServerUnaryReactor* ModelsService::DeclareModel(Rpc* rpc, const Bytes* request,
                                                      Bytes* response) {
  return StartOnEngine<DeclareModelMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* ModelsService::GetModel(Rpc* rpc, const Bytes* request, Bytes* response) {
  return AnswerAtOnce<GetModelMethod>(*context_, rpc, request, response);
}

grpc::ServerUnaryReactor* ModelsService::ListModels(Rpc* rpc, const Bytes* request,
                                                    Bytes* response) {
  return AnswerAtOnce<ListModelsMethod>(*context_, rpc, request, response);
}

grpc::ServerUnaryReactor* ModelsService::RemoveModel(Rpc* rpc, const Bytes* request,
                                                     Bytes* response) {
  return StartOnEngine<RemoveModelMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::OpenSequences(Rpc* rpc, const Bytes* request,
                                                          Bytes* response) {
  return StartOnEngine<OpenMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::ForkSequences(Rpc* rpc, const Bytes* request,
                                                          Bytes* response) {
  return StartOnEngine<ForkMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::ReorderSequences(Rpc* rpc, const Bytes* request,
                                                             Bytes* response) {
  return StartOnEngine<ReorderMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::TruncateSequences(Rpc* rpc, const Bytes* request,
                                                              Bytes* response) {
  return StartOnEngine<TruncateMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::CloseSequences(Rpc* rpc, const Bytes* request,
                                                           Bytes* response) {
  return StartOnEngine<CloseMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::DescribeSequences(Rpc* rpc, const Bytes* request,
                                                              Bytes* response) {
  return StartOnEngine<DescribeMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SequencesService::RenewLease(Rpc* rpc, const Bytes* request,
                                                       Bytes* response) {
  return StartOnEngine<RenewMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* AttentionService::Attend(Rpc* rpc, const Bytes* request,
                                                   Bytes* response) {
  return StartOnEngine<AttendMethod>(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* AttentionService::Compute(Rpc* rpc, const Bytes* request,
                                                    Bytes* response) {
  return AnswerAtOnce<ComputeMethod>(*context_, rpc, request, response);
}

grpc::ServerBidiReactor<Bytes, Bytes>* AttentionService::AttendStream(Rpc* rpc) {
  return server::AttendStream::Start(context_, rpc);
}

grpc::ServerUnaryReactor* AdminService::GetStats(Rpc* rpc, const Bytes* request, Bytes* response) {
  return AnswerAtOnce<GetStatsMethod>(*context_, rpc, request, response);
}

grpc::ServerUnaryReactor* AdminService::ListSequences(Rpc* rpc, const Bytes* request,
                                                      Bytes* response) {
  return StartOnEngine<ListSequencesMethod>(context_, rpc, request, response);
}

}  // namespace attn::server
