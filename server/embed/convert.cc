#include "server/embed/convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/request_check.h"
#include "server/core/sequence_names.h"

namespace attn::engine {
namespace {

absl::Status CheckLease(Nanos lease) {
  if (lease > 0) return absl::OkStatus();
  return MakeError(Reason::kInvalid, "lease", absl::StrCat("got ", lease, " ns, want above 0"));
}

absl::StatusOr<server::ModelPtr> ModelOf(SequenceId id, const Border& border,
                                         absl::string_view array, size_t index,
                                         absl::string_view member = {}) {
  return server::ResolveModel(id.value, border.registry, nullptr,
                              {array, static_cast<int>(index), member});
}

absl::Status CheckSameDTypes(const ModelSpec& spec) {
  for (size_t g = 1; g < spec.layer_groups.size(); ++g) {
    const AttentionSpec& first = spec.layer_groups[0].spec;
    const AttentionSpec& other = spec.layer_groups[g].spec;
    if (first.activation_dtype == other.activation_dtype && first.kv_dtype == other.kv_dtype) {
      continue;
    }
    return MakeError(
        Reason::kInvalid, absl::StrCat("spec.layer_groups[", g, "].spec"),
        absl::StrCat("got ", NameOf(other.activation_dtype), " with K and V in ",
                     NameOf(other.kv_dtype), ", want those of group 0, ",
                     NameOf(first.activation_dtype), " with ", NameOf(first.kv_dtype)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<server::Priority> PriorityOf(Priority priority) {
  static_assert(
      static_cast<int>(Priority::kBatch) == static_cast<int>(server::Priority::kBatch) &&
      static_cast<int>(Priority::kNormal) == static_cast<int>(server::Priority::kNormal) &&
      static_cast<int>(Priority::kInteractive) == static_cast<int>(server::Priority::kInteractive));
  if (priority >= Priority::kBatch && priority <= Priority::kInteractive) {
    return static_cast<server::Priority>(priority);
  }
  return MakeError(Reason::kUnsupported, "priority",
                   absl::StrCat("got ", static_cast<int>(priority), ", want 1 to 3"));
}

// ---------------------------------------------------------------------------------------- models

absl::StatusOr<server::DeclareModelCall> MakeDeclare(const ModelSpec& spec, const Border& border,
                                                     const server::SupportsSpec& supports) {
  ATTN_RETURN_IF_ERROR(CheckSameDTypes(spec));
  server::ModelDefinition definition;
  definition.name = spec.name;
  definition.content_tag = spec.content_tag;
  definition.num_layers = spec.num_layers;
  definition.page_size = spec.page_size;
  if (spec.page_size == 0) {
    const server::ModelPtr known = border.registry.FindByName(spec.name);
    definition.page_size =
        known == nullptr ? server::kDefaultPageSize : known->definition.page_size;
  }
  for (const LayerGroup& group : spec.layer_groups) {
    server::ModelGroup out{.layers = group.layers, .spec = group.spec};
    out.spec.num_layers = static_cast<uint32_t>(group.layers.size());
    out.spec.page_size = definition.page_size;
    definition.groups.push_back(std::move(out));
  }
  ATTN_RETURN_IF_ERROR(server::CheckDefinition(definition, border.limits, supports, "spec"));
  return server::DeclareModelCall{std::move(definition)};
}

ModelInfo InfoOf(const server::DeclareModelResult& result) {
  const server::ModelDefinition& definition = result.model->definition;
  ModelInfo info;
  info.spec.name = definition.name;
  info.spec.num_layers = definition.num_layers;
  info.spec.page_size = definition.page_size;
  info.spec.content_tag = definition.content_tag;
  for (const server::ModelGroup& group : definition.groups) {
    info.spec.layer_groups.push_back({group.layers, group.spec});
  }
  info.kv_bytes_per_token = result.model->kv_bytes_per_token;
  info.already_declared = result.already_declared;
  return info;
}

// ------------------------------------------------------------------------------------- sequences

absl::StatusOr<server::OpenCall> MakeOpen(const OpenRequest& request, const Border& border) {
  ATTN_RETURN_IF_ERROR(
      server::CheckItemCount(request.num_sequences, border.limits, "num_sequences"));
  ATTN_RETURN_IF_ERROR(server::CheckOwner(request.owner, border.limits));
  ATTN_RETURN_IF_ERROR(CheckLease(request.lease));
  server::OpenCall call;
  ATTN_ASSIGN_OR_RETURN(const server::Priority priority, PriorityOf(request.priority));
  call.model = border.registry.FindByName(request.model);
  if (call.model == nullptr) return server::UnknownModel("model", request.model);
  call.owner = request.owner;
  call.lease = request.lease;
  call.items.resize(request.num_sequences, {.priority = priority});
  return call;
}

absl::StatusOr<server::ForkCall> MakeFork(absl::Span<const ForkItem> items, const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckItemCount(items.size(), border.limits, "items"));
  uint64_t num_children = 0;
  for (const ForkItem& item : items) num_children += item.num_children;
  ATTN_RETURN_IF_ERROR(server::CheckNumChildren(num_children, border.limits));
  server::ForkCall call;
  for (size_t i = 0; i < items.size(); ++i) {
    server::ForkCall::Item item;
    item.parent.value = items[i].parent.value;
    item.at_len = items[i].at_len;
    item.num_children = items[i].num_children;
    item.refused = server::CheckForkItem(item.num_children, static_cast<int>(i));
    if (item.refused.ok()) {
      item.refused = ModelOf(items[i].parent, border, "items", i, "parent_id").status();
    }
    call.items.push_back(std::move(item));
  }
  return call;
}

std::vector<absl::StatusOr<std::vector<SequenceId>>> ChildrenOf(absl::Span<const ForkItem> items,
                                                                const server::ForkResult& result) {
  std::vector<absl::StatusOr<std::vector<SequenceId>>> children;
  auto next = result.children.begin();
  for (size_t i = 0; i < items.size(); ++i) {
    const auto end = next + items[i].num_children;
    if (result.items[i].ok()) {
      children.push_back(std::vector<SequenceId>(next, end));
    } else {
      children.push_back(result.items[i]);
    }
    next = end;
  }
  return children;
}

absl::StatusOr<server::ReorderCall> MakeReorder(absl::Span<const SequenceId> targets,
                                                absl::Span<const SequenceId> sources,
                                                const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckReorderCounts(targets.size(), sources.size(), border.limits));
  server::ReorderCall call;
  std::vector<ModelSlot> target_slots;
  std::vector<ModelSlot> source_slots;
  for (size_t i = 0; i < targets.size(); ++i) {
    ATTN_ASSIGN_OR_RETURN(const server::ModelPtr target, ModelOf(targets[i], border, "targets", i));
    ATTN_ASSIGN_OR_RETURN(const server::ModelPtr source, ModelOf(sources[i], border, "sources", i));
    target_slots.push_back(target->slot);
    source_slots.push_back(source->slot);
    call.targets.push_back({targets[i].value});
    call.sources.push_back({sources[i].value});
  }
  ATTN_RETURN_IF_ERROR(server::CheckReorderPairs(call, target_slots, source_slots));
  return call;
}

absl::StatusOr<server::TruncateCall> MakeTruncate(absl::Span<const TruncateItem> items,
                                                  const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckItemCount(items.size(), border.limits, "items"));
  server::TruncateCall call;
  for (size_t i = 0; i < items.size(); ++i) {
    call.items.push_back({{items[i].sequence.value},
                          items[i].len,
                          ModelOf(items[i].sequence, border, "items", i, "sequence_id").status()});
  }
  return call;
}

absl::StatusOr<server::RenewCall> MakeRenew(const std::string& owner, Nanos lease,
                                            const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckOwner(owner, border.limits));
  ATTN_RETURN_IF_ERROR(CheckLease(lease));
  return server::RenewCall{owner, lease};
}

absl::StatusOr<std::vector<absl::Status>> CheckSequences(absl::Span<const SequenceId> sequences,
                                                         const Border& border) {
  ATTN_RETURN_IF_ERROR(server::CheckItemCount(sequences.size(), border.limits, "sequence_ids"));
  std::vector<absl::Status> checked;
  for (size_t i = 0; i < sequences.size(); ++i) {
    checked.push_back(ModelOf(sequences[i], border, "sequence_ids", i).status());
  }
  return checked;
}

}  // namespace attn::engine
