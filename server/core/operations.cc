// What each lifecycle call does to the cache when its turn has come.
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/lifecycle.h"
#include "server/core/request_content.h"
#include "server/core/wire_field.h"

namespace attn::server {

// New sequences have no earlier items to wait for.
void Lifecycle::Open(std::unique_ptr<Call> call) {
  const auto& request = std::get<OpenCall>(call->request);
  const Nanos now = parts_.clock->Now();
  if (parts_.models->Find(request.model->slot) != request.model.get()) {
    return Refuse(std::move(call), MakeError(Reason::kUnknownModel, "model",
                                             "the model has been removed; declare it again"));
  }
  memory_.NoteLease(request.lease);
  OpenResult result;
  for (const OpenCall::Item& item : request.items) {
    result.items.push_back(OpenOne(request, item, call->stream, now));
    BindAlias(call->stream.get(), item.alias, result.items.back().value_or(SequenceId(0)));
  }
  if (request.request_key != 0) {
    memory_.Remember({call->request.index(), request.request_key}, {FingerprintOf(*call), result},
                     now);
  }
  call->result = std::move(result);
  parts_.answers->CountRefusedItems(call->result);
  parts_.answers->Add(std::move(call));
}

absl::StatusOr<SequenceId> Lifecycle::OpenOne(const OpenCall& request, const OpenCall::Item& item,
                                              const std::shared_ptr<StreamScope>& stream,
                                              Nanos now) {
  ATTN_ASSIGN_OR_RETURN(
      const SequenceId id,
      parts_.cache->Open(
          {.model = request.model->slot, .owner = request.owner, .lease = request.lease}, now));
  parts_.stats->opened_sequences.Add(1);
  const bool closes = request.close_with_stream && stream != nullptr;
  parts_.traits->Set(id, {.priority = item.priority,
                          .closes_with = closes ? stream : nullptr,
                          .closes_with_stream = closes});
  if (closes) NoteClosing(*stream, id);
  return id;
}

absl::Status Lifecycle::Execute(Operation& operation, Result& result) {
  const Request& request = operation.request;
  if (std::holds_alternative<ForkCall>(request)) {
    return Fork(operation, result.emplace<ForkResult>());
  }
  if (std::holds_alternative<ReorderCall>(request)) {
    result = ReorderResult{};
    return Reorder(operation);
  }
  if (std::holds_alternative<TruncateCall>(request)) {
    return Truncate(operation, result.emplace<TruncateResult>());
  }
  if (std::holds_alternative<DescribeCall>(request)) {
    return Describe(operation, result.emplace<DescribeResult>());
  }
  CloseResult closed;
  const absl::Status status = Close(operation, closed);
  if (std::holds_alternative<StreamEndedCall>(request)) {
    result = StreamEndedResult{};
  } else {
    result = std::move(closed);
  }
  return status;
}

absl::StatusOr<SequenceId> Lifecycle::OpenSequence(const Operation& operation, size_t index,
                                                   const char* field) const {
  const absl::StatusOr<SequenceId>& sequence = operation.sequences[index];
  if (!sequence.ok()) return sequence;
  if (parts_.order->IsFailed(*sequence)) return SkippedError(field, index);
  ATTN_RETURN_IF_ERROR(parts_.cache->CheckOpen(*sequence, absl::StrCat(field, "[", index, "]")));
  return sequence;
}

absl::Status Lifecycle::Fork(Operation& operation, ForkResult& result) {
  const auto& items = std::get<ForkCall>(operation.request).items;
  const std::span<SequenceId> all(operation.children);
  size_t first = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto children = all.subspan(first, items[i].num_children);
    first += children.size();
    const auto parent = OpenSequence(operation, i, "items.parent_id");
    absl::Status forked = parent.status();
    if (forked.ok()) {
      const uint32_t at_len = items[i].at_len.value_or(parts_.cache->CommittedLengthOf(*parent));
      forked = parts_.cache->Fork(*parent, at_len, children);
      if (FieldOf(forked) == "at_len") {
        forked = WithField(forked, absl::StrCat("items[", i, "].at_len"));
      }
    }
    if (forked.ok()) {
      parts_.stats->forked_sequences.Add(children.size());
    } else {
      FailChildren(operation, children);
      for (SequenceId& child : children) child = SequenceId(0);
    }
    result.items.push_back(std::move(forked));
  }
  result.children = operation.children;
  return absl::OkStatus();
}

absl::Status Lifecycle::Reorder(Operation& operation) {
  const auto& request = std::get<ReorderCall>(operation.request);
  std::vector<SequenceId> targets;
  std::vector<SequenceId> sources;
  for (size_t i = 0; i < operation.sequences.size(); ++i) {
    const bool is_target = i < request.targets.size();
    const size_t index = is_target ? i : i - request.targets.size();
    if (absl::StatusOr<SequenceId>& sequence = operation.sequences[i];
        sequence.ok() && parts_.order->IsFailed(*sequence)) {
      return SkippedError(is_target ? "targets" : "sources", index);
    }
    ATTN_RETURN_IF_ERROR(operation.sequences[i].status());
    (is_target ? targets : sources).push_back(*operation.sequences[i]);
  }
  return parts_.cache->Reorder(targets, sources);
}

absl::Status Lifecycle::Truncate(Operation& operation, TruncateResult& result) {
  const auto& items = std::get<TruncateCall>(operation.request).items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].refused.ok()) {
      result.items.push_back(items[i].refused);
      continue;
    }
    const auto sequence = OpenSequence(operation, i, "items.sequence_id");
    absl::StatusOr<uint32_t> committed =
        sequence.ok() ? parts_.cache->Truncate(*sequence, items[i].len) : sequence.status();
    if (FieldOf(committed.status()) == "len") {
      committed = WithField(committed.status(), absl::StrCat("items[", i, "].len"));
    }
    result.items.push_back(std::move(committed));
  }
  return absl::OkStatus();
}

absl::Status Lifecycle::Close(Operation& operation, CloseResult& result) {
  for (size_t i = 0; i < operation.sequences.size(); ++i) {
    const absl::StatusOr<SequenceId>& sequence = operation.sequences[i];
    absl::Status closed = sequence.status();
    if (closed.ok()) {
      closed = parts_.order->IsFailed(*sequence) ? SkippedError("sequence_ids", i)
                                                 : parts_.cache->Close(*sequence);
      parts_.traits->Erase(*sequence);
    }
    result.items.push_back(std::move(closed));
  }
  return absl::OkStatus();
}

absl::Status Lifecycle::Describe(Operation& operation, DescribeResult& result) {
  for (size_t i = 0; i < operation.sequences.size(); ++i) {
    const auto sequence = OpenSequence(operation, i, "sequence_ids");
    if (sequence.ok()) {
      result.items.push_back(parts_.cache->Describe(*sequence, parts_.clock->Now()));
    } else {
      result.items.push_back(sequence.status());
    }
  }
  return absl::OkStatus();
}

}  // namespace attn::server
