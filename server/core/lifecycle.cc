// How lifecycle calls arrive, wait and are answered. What they do is in operations.cc.
#include "server/core/lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "server/core/attend_line.h"
#include "server/core/request_content.h"

namespace attn::server {
namespace {

struct RequestKeyOf {
  uint64_t operator()(const OpenCall& call) const { return call.request_key; }
  uint64_t operator()(const ForkCall& call) const { return call.request_key; }
  uint64_t operator()(const ReorderCall& call) const { return call.request_key; }
  uint64_t operator()(const TruncateCall& call) const { return call.request_key; }
  template <typename Other>
  uint64_t operator()(const Other&) const {
    return 0;
  }
};

// How many children all items of a Fork together may have.
absl::Status CheckNumChildren(const Call& call, uint32_t max_sequences) {
  const auto* fork = std::get_if<ForkCall>(&call.request);
  if (fork == nullptr) return absl::OkStatus();
  uint64_t children = 0;
  for (const ForkCall::Item& item : fork->items) children += item.num_children;
  if (children <= max_sequences) return absl::OkStatus();
  return MakeError(Reason::kTooLarge, "items.num_children",
                   absl::StrCat("got ", children, " in all, want at most ", max_sequences));
}

RequestMemory::Key KeyOf(const Call& call) {
  return {call.request.index(), std::visit(RequestKeyOf{}, call.request)};
}

absl::Status KeyIsTaken(uint64_t request_key) {
  return MakeError(
      Reason::kInvalid, "request_key",
      absl::StrCat("got ", request_key,
                   ", which a request with other content has used, want a new random "
                   "number for a new request, or the first one's content to repeat it"));
}

}  // namespace

void Lifecycle::Add(std::unique_ptr<Call> call) {
  const Nanos now = parts_.clock->Now();
  if (call->cancelled->load(std::memory_order_relaxed) || now >= call->deadline) {
    const absl::Status late = LateError(*call, now);
    return Refuse(std::move(call), late);
  }
  if (AnswerRepeat(call)) return;
  if (std::holds_alternative<OpenCall>(call->request)) return Open(std::move(call));
  if (absl::Status many = CheckNumChildren(*call, parts_.max_sequences); !many.ok()) {
    return Refuse(std::move(call), std::move(many));
  }
  if (const auto* renew = std::get_if<RenewCall>(&call->request)) {
    memory_.NoteLease(renew->lease);
    call->result = RenewResult{renew->lease, parts_.cache->Renew(renew->owner, renew->lease, now)};
    return parts_.answers->Add(std::move(call));
  }
  if (const auto* list = std::get_if<ListCall>(&call->request)) {
    call->result = ListResult{parts_.cache->List(list->which, now)};
    return parts_.answers->Add(std::move(call));
  }
  if (const auto* declare = std::get_if<DeclareModelCall>(&call->request)) {
    auto declared = parts_.models->Declare(declare->definition);
    if (!declared.ok()) return parts_.answers->Fail(std::move(call), declared.status());
    if (!declared->already_declared) {
      parts_.observer->ModelDeclared(declared->model->definition.name);
    }
    call->result = *std::move(declared);
    return parts_.answers->Add(std::move(call));
  }
  if (const auto* remove = std::get_if<RemoveModelCall>(&call->request)) {
    call->result = RemoveModelResult{};
    call->status = parts_.models->Remove(remove->name);
    if (call->status.ok()) parts_.observer->ModelRemoved(remove->name);
    return parts_.answers->Add(std::move(call));
  }
  Enqueue(std::move(call));
}

void Lifecycle::Refuse(std::unique_ptr<Call> call, absl::Status status) {
  FailAliases(*call);
  parts_.answers->Fail(std::move(call), std::move(status));
}

// A repeat of a request key gets the first result, now or when it is there; another request under
// the key is refused. Takes the call if so.
bool Lifecycle::AnswerRepeat(std::unique_ptr<Call>& call) {
  const RequestMemory::Key key = KeyOf(*call);
  if (key.request_key == 0) return false;
  const RequestMemory::Entry* const done = memory_.Find(key);
  const auto waiting = by_key_.find(key);
  if (done == nullptr && waiting == by_key_.end()) return false;
  const uint64_t first = done != nullptr ? done->fingerprint : waiting->second->fingerprint;
  if (FingerprintOf(*call) != first) {
    Refuse(std::move(call), KeyIsTaken(key.request_key));
  } else if (done != nullptr) {
    AnswerAsFirst(std::move(call), done->result);
  } else {
    Operation& operation = *waiting->second;
    BindChildren(*call, operation.children, &operation.bound);
    operation.callers.push_back(std::move(call));
  }
  return true;
}

void Lifecycle::AnswerAsFirst(std::unique_ptr<Call> call, const Result& first) {
  call->result = first;
  if (const auto* open = std::get_if<OpenCall>(&call->request)) {
    const auto& opened = std::get<OpenResult>(first).items;
    for (size_t i = 0; i < open->items.size(); ++i) {
      BindAlias(call->stream.get(), open->items[i].alias, opened[i].value_or(SequenceId(0)));
    }
  } else if (const auto* forked = std::get_if<ForkResult>(&first)) {
    BindChildren(*call, forked->children, nullptr);
  }
  parts_.answers->Add(std::move(call));
}

void Lifecycle::Enqueue(std::unique_ptr<Call> call) {
  operations_.emplace_back();
  Operation& operation = operations_.back();
  operation.self = std::prev(operations_.end());
  operation.request = call->request;
  operation.key = KeyOf(*call);
  if (operation.key.request_key != 0) operation.fingerprint = FingerprintOf(*call);
  ResolveAll(operation, *call);
  std::vector<SequenceId> in_line;
  for (const auto& sequence : operation.sequences) {
    if (sequence.ok()) in_line.push_back(*sequence);
  }
  operation.renews = !std::holds_alternative<DescribeCall>(call->request);
  for (const SequenceId sequence : in_line) {
    if (!parts_.cache->CheckOpen(sequence).ok()) continue;
    parts_.cache->AddUse(sequence);
    if (operation.renews) parts_.cache->Touch(sequence, parts_.clock->Now());
    operation.in_use.push_back(sequence);
  }
  for (const SequenceId child : operation.children) {
    if (child != SequenceId(0)) in_line.push_back(child);
  }
  if (operation.key.request_key != 0) by_key_[operation.key] = &operation;
  operation.callers.push_back(std::move(call));
  operation.place = parts_.order->Add(in_line, &operation);
}

void Lifecycle::Resolve(Operation& operation, const Call& call, SequenceRef ref, const char* field,
                        size_t index) {
  operation.sequences.push_back(server::Resolve(call.stream.get(), ref, field, index));
}

void Lifecycle::ResolveAll(Operation& operation, const Call& call) {
  const Request& request = call.request;
  if (const auto* fork = std::get_if<ForkCall>(&request)) {
    for (size_t i = 0; i < fork->items.size(); ++i) {
      Resolve(operation, call, fork->items[i].parent, "items.parent_id", i);
    }
    NameChildren(operation, call);
  } else if (const auto* reorder = std::get_if<ReorderCall>(&request)) {
    for (size_t i = 0; i < reorder->targets.size(); ++i) {
      Resolve(operation, call, reorder->targets[i], "targets", i);
    }
    for (size_t i = 0; i < reorder->sources.size(); ++i) {
      Resolve(operation, call, reorder->sources[i], "sources", i);
    }
  } else if (const auto* truncate = std::get_if<TruncateCall>(&request)) {
    for (size_t i = 0; i < truncate->items.size(); ++i) {
      Resolve(operation, call, truncate->items[i].sequence, "items.sequence_id", i);
    }
  } else if (const auto* close = std::get_if<CloseCall>(&request)) {
    for (size_t i = 0; i < close->sequences.size(); ++i) {
      Resolve(operation, call, close->sequences[i], "sequence_ids", i);
    }
  } else if (const auto* describe = std::get_if<DescribeCall>(&request)) {
    for (size_t i = 0; i < describe->sequences.size(); ++i) {
      Resolve(operation, call, describe->sequences[i], "sequence_ids", i);
    }
  } else if (std::holds_alternative<StreamEndedCall>(request) && call.stream != nullptr) {
    for (const SequenceId sequence : call.stream->close_with_stream) {
      operation.sequences.emplace_back(sequence);
    }
    call.stream->close_with_stream.clear();
    call.stream->aliases.clear();
  }
}

// Gives ids to the children of a Fork and binds their aliases.
void Lifecycle::NameChildren(Operation& operation, const Call& call) {
  const auto& items = std::get<ForkCall>(call.request).items;
  for (size_t i = 0; i < items.size(); ++i) {
    absl::StatusOr<SequenceId>& parent = operation.sequences[i];
    if (!items[i].refused.ok()) parent = items[i].refused;
    if (parent.ok() && parts_.models->Find(SlotOf(*parent)) == nullptr) {
      parent = parts_.cache->CheckOpen(*parent, absl::StrCat("items.parent_id[", i, "]"));
    }
    const size_t first = operation.children.size();
    for (uint32_t child = 0; child < items[i].num_children; ++child) {
      operation.children.push_back(parent.ok() ? parts_.cache->NextId(SlotOf(*parent))
                                               : SequenceId(0));
    }
    if (parent.ok()) Inherit(*parent, std::span(operation.children).subspan(first));
  }
  BindChildren(call, operation.children, &operation.bound);
}

// Children have the priority of their parent and close with the stream it closes with.
void Lifecycle::Inherit(SequenceId parent, std::span<const SequenceId> children) {
  const Traits traits = parts_.traits->Get(parent);
  const std::shared_ptr<StreamScope> stream = traits.closes_with.lock();
  for (const SequenceId child : children) {
    parts_.traits->Set(child, traits);
    if (stream != nullptr) NoteClosing(*stream, child);
  }
}

void Lifecycle::NoteClosing(StreamScope& stream, SequenceId sequence) {
  std::vector<SequenceId>& list = stream.close_with_stream;
  list.push_back(sequence);
  if (list.size() <= stream.max_close_with_stream) return;
  std::erase_if(list, [this](SequenceId id) { return !parts_.traits->Has(id); });
  stream.max_close_with_stream = std::max<size_t>(64, 2 * list.size());
}

// Sequence 0 stands for one that could not be made. An alias may be bound anew.
void Lifecycle::BindAlias(StreamScope* stream, uint32_t alias, SequenceId sequence) {
  if (stream == nullptr || alias == 0) return;
  stream->aliases[alias] = {sequence, sequence == SequenceId(0)};
  if (stream->aliases.size() <= stream->max_aliases) return;
  absl::erase_if(stream->aliases, [this](const auto& entry) {
    const SequenceId id = entry.second.sequence;
    return id != SequenceId(0) && !parts_.cache->CheckOpen(id).ok() && !parts_.order->HasLine(id);
  });
  stream->max_aliases = std::max<size_t>(1024, 2 * stream->aliases.size());
}

// Binds the aliases that a Fork defines; notes them in `bound`, if given, until its outcome is
// known.
void Lifecycle::BindChildren(const Call& call, std::span<const SequenceId> children,
                             std::vector<Operation::BoundAlias>* bound) {
  const auto* fork = std::get_if<ForkCall>(&call.request);
  if (fork == nullptr || call.stream == nullptr) return;
  size_t next = 0;
  for (const ForkCall::Item& item : fork->items) {
    for (uint32_t i = 0; i < item.num_children && next < children.size(); ++i, ++next) {
      if (item.first_alias == 0) continue;
      BindAlias(call.stream.get(), item.first_alias + i, children[next]);
      if (bound != nullptr) bound->push_back({call.stream, item.first_alias + i, children[next]});
    }
  }
}

void Lifecycle::FailAliases(const Call& call) {
  StreamScope* const stream = call.stream.get();
  if (const auto* open = std::get_if<OpenCall>(&call.request)) {
    for (const OpenCall::Item& item : open->items) BindAlias(stream, item.alias, SequenceId(0));
  } else if (const auto* fork = std::get_if<ForkCall>(&call.request)) {
    for (const ForkCall::Item& item : fork->items) {
      if (stream == nullptr || item.first_alias == 0) continue;
      const uint32_t bound = std::min(item.num_children, parts_.max_sequences);
      for (uint32_t i = 0; i < bound; ++i) BindAlias(stream, item.first_alias + i, SequenceId(0));
    }
  }
}

void Lifecycle::Run(Operation& operation) {
  const Nanos now = parts_.clock->Now();
  DropLateCallers(operation, now);
  if (operation.callers.empty()) return Abandon(operation);
  Result result;
  const absl::Status status = Execute(operation, result);
  if (status.ok()) parts_.answers->CountRefusedItems(result);
  if (status.ok() && operation.key.request_key != 0) {
    memory_.Remember(operation.key, {operation.fingerprint, result}, now);
  }
  for (std::unique_ptr<Call>& call : operation.callers) {
    call->status = status;
    call->result = result;
    parts_.answers->Add(std::move(call));
  }
  Finish(operation);
}

void Lifecycle::DropLateCallers(Operation& operation, Nanos now) {
  std::erase_if(operation.callers, [&](std::unique_ptr<Call>& call) {
    if (now < call->deadline && !call->cancelled->load(std::memory_order_relaxed)) return false;
    const absl::Status late = LateError(*call, now);
    parts_.answers->Fail(std::move(call), late);
    return true;
  });
}

// Nobody waits for it any more: it will not act.
void Lifecycle::Abandon(Operation& operation) {
  FailChildren(operation, operation.children);
  Finish(operation);
}

// `children` are among the operation's: items on their aliases get SKIPPED.
void Lifecycle::FailChildren(Operation& operation, std::span<const SequenceId> children) {
  absl::flat_hash_set<SequenceId> failed;
  for (const SequenceId child : children) {
    if (child == SequenceId(0)) continue;
    failed.insert(child);
    parts_.order->MarkFailed(child);
    parts_.traits->Erase(child);
  }
  for (const Operation::BoundAlias& bound : operation.bound) {
    if (!failed.contains(bound.sequence)) continue;
    const auto alias = bound.stream->aliases.find(bound.alias);
    if (alias == bound.stream->aliases.end() || alias->second.sequence != bound.sequence) continue;
    alias->second.failed = true;
  }
}

void Lifecycle::Finish(Operation& operation) {
  for (const SequenceId sequence : operation.in_use) {
    parts_.cache->DropUse(sequence);
    if (operation.renews) parts_.cache->Touch(sequence, parts_.clock->Now());
  }
  if (operation.key.request_key != 0) by_key_.erase(operation.key);
  parts_.order->Abandon(operation.place);
  operations_.erase(operation.self);
}

void Lifecycle::DropLate(Nanos now) {
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    Operation& current = *operation++;
    DropLateCallers(current, now);
    if (current.callers.empty()) Abandon(current);
  }
}

void Lifecycle::FailAll(const absl::Status& status) {
  while (!operations_.empty()) {
    Operation& operation = operations_.front();
    for (std::unique_ptr<Call>& call : operation.callers) {
      parts_.answers->Fail(std::move(call), status);
    }
    operation.callers.clear();
    Abandon(operation);
  }
}

void Lifecycle::Expire(Nanos now) {
  std::vector<kvcache::ExpiredOwner> owners;
  for (const SequenceId sequence : parts_.cache->Expire(now, &owners)) {
    parts_.traits->Erase(sequence);
    parts_.stats->expired_sequences.Add(1);
  }
  for (const kvcache::ExpiredOwner& owner : owners) {
    parts_.stats->expired_owners.Add(1);
    parts_.observer->OwnerExpired(owner.name, owner.num_sequences);
  }
  memory_.Forget(now);
}

}  // namespace attn::server
