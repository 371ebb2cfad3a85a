#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/request_check.h"
#include "server/rpc/enum_codec.h"
#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

absl::StatusOr<Nanos> DecodeLease(uint32_t lease_ms, const WireLimits& limits) {
  if (lease_ms == 0) return limits.default_lease_ms * kMillisecond;
  if (lease_ms >= limits.min_lease_ms && lease_ms <= limits.max_lease_ms) {
    return lease_ms * kMillisecond;
  }
  return MakeError(Reason::kInvalid, "lease_ms",
                   absl::StrCat("got ", lease_ms, ", want 0 or ", limits.min_lease_ms, " to ",
                                limits.max_lease_ms));
}

absl::Status CheckFingerprint(const std::string& fingerprint, const Model& model) {
  if (fingerprint.empty() || fingerprint == model.definition.fingerprint) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "model_fingerprint",
                   absl::StrCat("got ", fingerprint.size(), " bytes that differ from model ",
                                model.definition.name, ", want its fingerprint or none"));
}

// ------------------------------------------------------------------------------------------ open

absl::Status DecodeOpenItems(const v1::OpenSequencesRequest& request, const DecodeContext& context,
                             OpenCall* call, Decoded* decoded) {
  AliasClaims claims;
  for (int i = 0; i < request.items_size(); ++i) {
    const v1::OpenSequencesRequest::Item& item = request.items(i);
    ATTN_ASSIGN_OR_RETURN(const Priority priority,
                          DecodePriority(item.priority(), FieldAt{"items", i, "priority"}.Path()));
    const AliasRange range{item.alias(), 1};
    absl::Status status = claims.Claim(
        range, context.aliases, context.limits.max_aliases_per_stream, {"items", i, "alias"});
    if (item.max_len_hint() > context.limits.max_sequence_len) {
      status = MakeError(Reason::kTooLarge, FieldAt{"items", i, "max_len_hint"}.Path(),
                         absl::StrCat("got ", item.max_len_hint(), ", want at most ",
                                      context.limits.max_sequence_len, " (max_sequence_len)"));
    }
    if (!status.ok()) {
      decoded->refused.push_back({static_cast<uint32_t>(i), std::move(status)});
      continue;
    }
    call->items.push_back({item.alias(), priority});
    if (item.alias() != 0) decoded->aliases.push_back(range);
  }
  return absl::OkStatus();
}

absl::StatusOr<Decoded> DecodeOpenRequest(const v1::OpenSequencesRequest& request,
                                          const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "open"));
  ATTN_RETURN_IF_ERROR(CheckAllKnown(request.items(), "items"));
  ATTN_RETURN_IF_ERROR(CheckItemCount(request.items_size(), context.limits, "items"));
  ATTN_RETURN_IF_ERROR(CheckOwner(request.owner(), context.limits));
  OpenCall call;
  ATTN_ASSIGN_OR_RETURN(call.lease, DecodeLease(request.lease_ms(), context.limits));
  call.model = context.registry.FindByName(request.model());
  if (call.model == nullptr) return UnknownModel("model", request.model());
  ATTN_RETURN_IF_ERROR(CheckFingerprint(request.model_fingerprint(), *call.model));
  if (request.close_with_stream() && context.aliases == nullptr) {
    return MakeError(Reason::kInvalid, "close_with_stream",
                     "got true, want false: there is no stream here");
  }
  call.owner = request.owner();
  call.close_with_stream = request.close_with_stream();
  call.request_key = request.request_key();
  Decoded decoded;
  ATTN_RETURN_IF_ERROR(DecodeOpenItems(request, context, &call, &decoded));
  for (const AliasRange& range : decoded.aliases) {
    context.aliases->Define(range, call.model->slot);
  }
  decoded.request = std::move(call);
  return decoded;
}

// ------------------------------------------------------------------------------------------ fork

uint64_t NumChildrenOf(const v1::ForkSequencesRequest& request) {
  uint64_t total = 0;
  for (const v1::ForkSequencesRequest::Item& item : request.items()) total += item.num_children();
  return total;
}

absl::Status DecodeForkItem(const v1::ForkSequencesRequest::Item& item, int index,
                            const DecodeContext& context, AliasClaims* claims, Decoded* decoded) {
  ATTN_RETURN_IF_ERROR(CheckForkItem(item.num_children(), index));
  ATTN_ASSIGN_OR_RETURN(const ModelPtr model,
                        ResolveModel(item.parent_id(), context.registry, context.aliases,
                                     {"items", index, "parent_id"}));
  const AliasRange range{item.first_alias(), item.num_children()};
  ATTN_RETURN_IF_ERROR(claims->Claim(range, context.aliases, context.limits.max_aliases_per_stream,
                                     {"items", index, "first_alias"}));
  if (range.first == 0) return absl::OkStatus();
  context.aliases->Define(range, model->slot);
  decoded->aliases.push_back(range);
  return absl::OkStatus();
}

absl::StatusOr<Decoded> DecodeForkRequest(const v1::ForkSequencesRequest& request,
                                          const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "fork"));
  ATTN_RETURN_IF_ERROR(CheckAllKnown(request.items(), "items"));
  ATTN_RETURN_IF_ERROR(CheckItemCount(request.items_size(), context.limits, "items"));
  ATTN_RETURN_IF_ERROR(CheckNumChildren(NumChildrenOf(request), context.limits));
  const absl::Status stale = CheckEpoch(request.server_epoch(), context.server_epoch);
  ForkCall call;
  call.request_key = request.request_key();
  Decoded decoded;
  AliasClaims claims;
  for (int i = 0; i < request.items_size(); ++i) {
    const v1::ForkSequencesRequest::Item& item = request.items(i);
    ForkCall::Item out;
    out.parent = SequenceRef{item.parent_id()};
    if (item.has_at_len()) out.at_len = item.at_len();
    out.num_children = item.num_children();
    out.first_alias = item.first_alias();
    out.refused = stale.ok() ? DecodeForkItem(item, i, context, &claims, &decoded) : stale;
    call.items.push_back(std::move(out));
  }
  decoded.request = std::move(call);
  return decoded;
}

// Marks what a refused request was to define. Ranges too long to be legal define nothing.
void MarkFailed(AliasRange range, const DecodeContext& context) {
  if (context.aliases == nullptr || range.first == 0) return;
  if (range.count > context.limits.max_items_per_request) return;
  if (uint64_t{range.first} + range.count > uint64_t{UINT32_MAX} + 1) return;
  if (context.aliases->size() + range.count > context.limits.max_aliases_per_stream) return;
  context.aliases->MarkFailed(range);
}

// Whether a definition of this request that stands names one of the aliases.
bool Overlaps(AliasRange range, const std::vector<AliasRange>& standing) {
  return std::any_of(standing.begin(), standing.end(), [&](const AliasRange& other) {
    return range.first < uint64_t{other.first} + other.count &&
           other.first < uint64_t{range.first} + range.count;
  });
}

// ----------------------------------------------------------------------- reorder, close, describe

absl::StatusOr<std::vector<SequenceRef>> ResolveAll(
    const google::protobuf::RepeatedField<uint64_t>& ids, absl::string_view array,
    const DecodeContext& context, std::vector<ModelSlot>* slots) {
  std::vector<SequenceRef> refs;
  for (int i = 0; i < ids.size(); ++i) {
    ATTN_ASSIGN_OR_RETURN(const ModelPtr model,
                          ResolveModel(ids.Get(i), context.registry, context.aliases, {array, i}));
    slots->push_back(model->slot);
    refs.push_back(SequenceRef{ids.Get(i)});
  }
  return refs;
}

// The sequences that can be looked up; the others become refused items.
std::vector<SequenceRef> ResolveEach(const google::protobuf::RepeatedField<uint64_t>& ids,
                                     uint64_t epoch, const DecodeContext& context,
                                     std::vector<RefusedItem>* refused) {
  const absl::Status stale = CheckEpoch(epoch, context.server_epoch);
  std::vector<SequenceRef> refs;
  for (int i = 0; i < ids.size(); ++i) {
    const absl::Status status = stale.ok() ? ResolveModel(ids.Get(i), context.registry,
                                                          context.aliases, {"sequence_ids", i})
                                                 .status()
                                           : stale;
    if (status.ok()) {
      refs.push_back(SequenceRef{ids.Get(i)});
    } else {
      refused->push_back({static_cast<uint32_t>(i), status});
    }
  }
  return refs;
}

}  // namespace

absl::StatusOr<Decoded> DecodeOpen(const v1::OpenSequencesRequest& request,
                                   const DecodeContext& context) {
  absl::StatusOr<Decoded> decoded = DecodeOpenRequest(request, context);
  if (!decoded.ok()) {
    for (const auto& item : request.items()) MarkFailed({item.alias(), 1}, context);
    return decoded;
  }
  for (const RefusedItem& refused : decoded->refused) {
    const AliasRange range{request.items(static_cast<int>(refused.item)).alias(), 1};
    if (!Overlaps(range, decoded->aliases)) MarkFailed(range, context);
  }
  return decoded;
}

absl::StatusOr<Decoded> DecodeFork(const v1::ForkSequencesRequest& request,
                                   const DecodeContext& context) {
  absl::StatusOr<Decoded> decoded = DecodeForkRequest(request, context);
  for (int i = 0; i < request.items_size(); ++i) {
    const AliasRange range{request.items(i).first_alias(), request.items(i).num_children()};
    if (decoded.ok()) {
      ForkCall::Item& item = std::get<ForkCall>(decoded->request).items[i];
      if (item.refused.ok()) continue;
      if (Overlaps(range, decoded->aliases)) {
        item.first_alias = 0;  // those aliases belong to an item that stands
        continue;
      }
    }
    MarkFailed(range, context);
  }
  return decoded;
}

absl::StatusOr<Decoded> DecodeReorder(const v1::ReorderSequencesRequest& request,
                                      const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "reorder"));
  ATTN_RETURN_IF_ERROR(
      CheckReorderCounts(request.targets_size(), request.sources_size(), context.limits));
  ATTN_RETURN_IF_ERROR(CheckEpoch(request.server_epoch(), context.server_epoch));
  ReorderCall call;
  call.request_key = request.request_key();
  std::vector<ModelSlot> target_slots;
  std::vector<ModelSlot> source_slots;
  ATTN_ASSIGN_OR_RETURN(call.targets,
                        ResolveAll(request.targets(), "targets", context, &target_slots));
  ATTN_ASSIGN_OR_RETURN(call.sources,
                        ResolveAll(request.sources(), "sources", context, &source_slots));
  ATTN_RETURN_IF_ERROR(CheckReorderPairs(call, target_slots, source_slots));
  return Decoded(std::move(call));
}

absl::StatusOr<Decoded> DecodeTruncate(const v1::TruncateSequencesRequest& request,
                                       const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "truncate"));
  ATTN_RETURN_IF_ERROR(CheckAllKnown(request.items(), "items"));
  ATTN_RETURN_IF_ERROR(CheckItemCount(request.items_size(), context.limits, "items"));
  const absl::Status stale = CheckEpoch(request.server_epoch(), context.server_epoch);
  TruncateCall call;
  call.request_key = request.request_key();
  for (int i = 0; i < request.items_size(); ++i) {
    const v1::TruncateSequencesRequest::Item& item = request.items(i);
    TruncateCall::Item out{SequenceRef{item.sequence_id()}, item.len(), stale};
    if (out.refused.ok()) {
      out.refused = ResolveModel(item.sequence_id(), context.registry, context.aliases,
                                 {"items", i, "sequence_id"})
                        .status();
    }
    if (item.keep_rows_size() > 0) {
      out.refused = MakeError(Reason::kUnsupported, FieldAt{"items", i, "keep_rows"}.Path(),
                              absl::StrCat("got ", item.keep_rows_size(),
                                           " entries, want none: this server does not have the "
                                           "feature (see GetServerInfo.features)"));
    }
    call.items.push_back(std::move(out));
  }
  return Decoded(std::move(call));
}

absl::StatusOr<Decoded> DecodeClose(const v1::CloseSequencesRequest& request,
                                    const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "close"));
  ATTN_RETURN_IF_ERROR(CheckItemCount(request.sequence_ids_size(), context.limits, "sequence_ids"));
  Decoded decoded;
  decoded.request = CloseCall{
      ResolveEach(request.sequence_ids(), request.server_epoch(), context, &decoded.refused)};
  return decoded;
}

absl::StatusOr<Decoded> DecodeDescribe(const v1::DescribeSequencesRequest& request,
                                       const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "describe"));
  ATTN_RETURN_IF_ERROR(CheckItemCount(request.sequence_ids_size(), context.limits, "sequence_ids"));
  Decoded decoded;
  decoded.request = DescribeCall{
      ResolveEach(request.sequence_ids(), request.server_epoch(), context, &decoded.refused)};
  return decoded;
}

absl::StatusOr<Decoded> DecodeRenew(const v1::RenewLeaseRequest& request,
                                    const DecodeContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, "renew"));
  ATTN_RETURN_IF_ERROR(CheckEpoch(request.server_epoch(), context.server_epoch));
  ATTN_RETURN_IF_ERROR(CheckOwner(request.owner(), context.limits));
  RenewCall call;
  call.owner = request.owner();
  ATTN_ASSIGN_OR_RETURN(call.lease, DecodeLease(request.lease_ms(), context.limits));
  return Decoded(std::move(call));
}

}  // namespace attn::server
