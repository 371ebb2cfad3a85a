#include "client/src/wire_sequence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "client/src/retry.h"
#include "client/src/wire_status.h"

namespace attn::client {
namespace {

using ItemErrors = google::protobuf::RepeatedPtrField<v1::ItemError>;

// One status per item, OK for those without an entry.
absl::StatusOr<std::vector<absl::Status>> SpreadErrors(const ItemErrors& errors, size_t num_items) {
  std::vector<absl::Status> statuses(num_items);
  for (const v1::ItemError& error : errors) {
    if (error.item() >= num_items) {
      return MakeError(
          Reason::kInternal, "errors",
          absl::StrCat("the server's answer names item ", error.item(), " of ", num_items));
    }
    statuses[error.item()] = FromWire(error.status());
  }
  return statuses;
}

absl::Status CheckCount(absl::string_view field, size_t got, size_t want) {
  if (got == want) return absl::OkStatus();
  return MakeError(Reason::kInternal, field,
                   absl::StrCat("the server's answer has ", got, " entries, want ", want));
}

}  // namespace

v1::OpenSequencesRequest ToWire(const OpenRequest& request) {
  v1::OpenSequencesRequest wire;
  wire.set_model(request.model);
  wire.set_model_fingerprint(request.model_fingerprint);
  wire.set_owner(request.owner);
  wire.set_lease_ms(request.lease_ms);
  wire.set_close_with_stream(request.close_with_stream);
  wire.set_request_key(RandomKey());
  for (uint32_t i = 0; i < request.num_sequences; ++i) {
    v1::OpenSequencesRequest::Item* item = wire.add_items();
    item->set_max_len_hint(request.max_len_hint);
    item->set_priority(static_cast<v1::Priority>(request.priority));
  }
  return wire;
}

v1::ForkSequencesRequest ToWire(const std::vector<ForkItem>& items, uint64_t epoch) {
  v1::ForkSequencesRequest wire;
  wire.set_server_epoch(epoch);
  wire.set_request_key(RandomKey());
  for (const ForkItem& item : items) {
    v1::ForkSequencesRequest::Item* out = wire.add_items();
    out->set_parent_id(item.parent.value);
    if (item.at_len.has_value()) out->set_at_len(*item.at_len);
    out->set_num_children(item.num_children);
  }
  return wire;
}

v1::ReorderSequencesRequest ToWire(const ReorderRequest& request, uint64_t epoch) {
  v1::ReorderSequencesRequest wire;
  wire.set_server_epoch(epoch);
  wire.set_request_key(RandomKey());
  for (const SequenceId target : request.targets) wire.add_targets(target.value);
  for (const SequenceId source : request.sources) wire.add_sources(source.value);
  return wire;
}

v1::TruncateSequencesRequest ToWire(const std::vector<TruncateItem>& items, uint64_t epoch) {
  v1::TruncateSequencesRequest wire;
  wire.set_server_epoch(epoch);
  wire.set_request_key(RandomKey());
  for (const TruncateItem& item : items) {
    v1::TruncateSequencesRequest::Item* out = wire.add_items();
    out->set_sequence_id(item.sequence.value);
    out->set_len(item.len);
  }
  return wire;
}

v1::CloseSequencesRequest CloseToWire(const std::vector<SequenceId>& sequences, uint64_t epoch) {
  v1::CloseSequencesRequest wire;
  wire.set_server_epoch(epoch);
  for (const SequenceId sequence : sequences) wire.add_sequence_ids(sequence.value);
  return wire;
}

absl::StatusOr<OpenResult> FromWire(const v1::OpenSequencesResponse& wire, size_t num_sequences) {
  ATTN_RETURN_IF_ERROR(
      CheckCount("sequence_ids", static_cast<size_t>(wire.sequence_ids_size()), num_sequences));
  ATTN_ASSIGN_OR_RETURN(const auto statuses, SpreadErrors(wire.errors(), num_sequences));
  OpenResult result;
  result.lease_ms = wire.lease_ms();
  for (size_t i = 0; i < num_sequences; ++i) {
    if (statuses[i].ok()) {
      result.sequences.emplace_back(SequenceId(wire.sequence_ids(static_cast<int>(i))));
    } else {
      result.sequences.emplace_back(statuses[i]);
    }
  }
  return result;
}

absl::StatusOr<ForkResult> FromWire(const v1::ForkSequencesResponse& wire,
                                    const std::vector<ForkItem>& items) {
  size_t num_children = 0;
  for (const ForkItem& item : items) num_children += item.num_children;
  ATTN_RETURN_IF_ERROR(
      CheckCount("child_ids", static_cast<size_t>(wire.child_ids_size()), num_children));
  ATTN_ASSIGN_OR_RETURN(const auto statuses, SpreadErrors(wire.errors(), items.size()));
  ForkResult result;
  int next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<SequenceId> children;
    for (uint32_t c = 0; c < items[i].num_children; ++c) {
      children.emplace_back(wire.child_ids(next++));
    }
    if (statuses[i].ok()) {
      result.emplace_back(std::move(children));
    } else {
      result.emplace_back(statuses[i]);
    }
  }
  return result;
}

absl::StatusOr<TruncateResult> FromWire(const v1::TruncateSequencesResponse& wire,
                                        size_t num_items) {
  ATTN_RETURN_IF_ERROR(
      CheckCount("committed_lens", static_cast<size_t>(wire.committed_lens_size()), num_items));
  ATTN_ASSIGN_OR_RETURN(const auto statuses, SpreadErrors(wire.errors(), num_items));
  TruncateResult result;
  for (size_t i = 0; i < num_items; ++i) {
    if (statuses[i].ok()) {
      result.emplace_back(wire.committed_lens(static_cast<int>(i)));
    } else {
      result.emplace_back(statuses[i]);
    }
  }
  return result;
}

absl::StatusOr<std::vector<absl::Status>> FromWire(const v1::CloseSequencesResponse& wire,
                                                   size_t num_items) {
  return SpreadErrors(wire.errors(), num_items);
}

absl::StatusOr<std::vector<absl::StatusOr<SequenceInfo>>> FromWire(
    const v1::DescribeSequencesResponse& wire, size_t num_items) {
  ATTN_ASSIGN_OR_RETURN(const auto statuses, SpreadErrors(wire.errors(), num_items));
  // One entry per item, or one per item that did not fail.
  const size_t num_ok = static_cast<size_t>(
      std::count_if(statuses.begin(), statuses.end(), [](const auto& s) { return s.ok(); }));
  const auto num_infos = static_cast<size_t>(wire.sequences_size());
  if (num_infos != num_items) ATTN_RETURN_IF_ERROR(CheckCount("sequences", num_infos, num_ok));
  std::vector<absl::StatusOr<SequenceInfo>> result;
  int next = 0;
  for (size_t i = 0; i < num_items; ++i) {
    if (!statuses[i].ok()) {
      if (num_infos == num_items) ++next;
      result.emplace_back(statuses[i]);
      continue;
    }
    const v1::SequenceInfo& from = wire.sequences(next++);
    SequenceInfo info;
    info.sequence = SequenceId(from.sequence_id());
    info.model = from.model();
    info.owner = from.owner();
    info.committed_len = from.committed_len();
    info.layer_lens.assign(from.layer_lens().begin(), from.layer_lens().end());
    info.num_pages = from.num_pages();
    info.num_shared_pages = from.num_shared_pages();
    info.lease_remaining_ms = from.lease_remaining_ms();
    result.emplace_back(std::move(info));
  }
  return result;
}

Renewal FromWire(const v1::RenewLeaseResponse& wire) {
  Renewal renewal;
  renewal.lease_ms = wire.lease_ms();
  renewal.num_sequences = wire.num_sequences();
  for (const uint64_t lost : wire.lost_sequence_ids()) renewal.lost.emplace_back(lost);
  return renewal;
}

}  // namespace attn::client
