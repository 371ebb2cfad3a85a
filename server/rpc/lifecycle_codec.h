// Requests that open, fork, reorder, truncate, close, describe and renew sequences, and their
// answers. An error of a decoder fails the request; items fail on their own, see Decoded::refused
// and the items' own `refused`.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/admin.pb.h"
#include "attn/v1/attention.pb.h"
#include "server/core/call.h"
#include "server/core/model_registry.h"
#include "server/rpc/decode.h"

namespace attn::server {

// The decoders of Open and Fork note the aliases that they define in context.aliases; when the
// request is refused, as failed.
absl::StatusOr<Decoded> DecodeOpen(const v1::OpenSequencesRequest& request,
                                   const DecodeContext& context);
absl::StatusOr<Decoded> DecodeFork(const v1::ForkSequencesRequest& request,
                                   const DecodeContext& context);
absl::StatusOr<Decoded> DecodeReorder(const v1::ReorderSequencesRequest& request,
                                      const DecodeContext& context);
absl::StatusOr<Decoded> DecodeTruncate(const v1::TruncateSequencesRequest& request,
                                       const DecodeContext& context);
absl::StatusOr<Decoded> DecodeClose(const v1::CloseSequencesRequest& request,
                                    const DecodeContext& context);
absl::StatusOr<Decoded> DecodeDescribe(const v1::DescribeSequencesRequest& request,
                                       const DecodeContext& context);
absl::StatusOr<Decoded> DecodeRenew(const v1::RenewLeaseRequest& request,
                                    const DecodeContext& context);

void EncodeOpen(const OpenCall& call, const OpenResult& result,
                const std::vector<RefusedItem>& refused, uint64_t server_epoch,
                v1::OpenSequencesResponse* out);
void EncodeFork(const ForkResult& result, v1::ForkSequencesResponse* out);
void EncodeTruncate(const TruncateResult& result, v1::TruncateSequencesResponse* out);
void EncodeClose(const CloseResult& result, const std::vector<RefusedItem>& refused,
                 v1::CloseSequencesResponse* out);
void EncodeDescribe(const DescribeResult& result, const std::vector<RefusedItem>& refused,
                    const ModelRegistry& registry, v1::DescribeSequencesResponse* out);
void EncodeSummary(const kvcache::SequenceSummary& summary, const ModelRegistry& registry,
                   v1::SequenceSummary* out);
void EncodeRenew(const RenewResult& result, v1::RenewLeaseResponse* out);

}  // namespace attn::server
