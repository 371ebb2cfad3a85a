#include <algorithm>
#include <string>
#include <utility>

#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/status_codec.h"

namespace attn::server {
namespace {

template <typename Response>
void AddError(uint32_t item, const absl::Status& status, Response* out) {
  v1::ItemError* error = out->add_errors();
  error->set_item(item);
  EncodeStatus(status, error->mutable_status());
}

// Calls visit(item, index into the results or -1, status or null) for every item of the message in
// order, refused ones put back in their places.
template <typename Visit>
void ForEachItem(size_t num_results, const std::vector<RefusedItem>& refused, Visit visit) {
  const size_t total = num_results + refused.size();
  size_t next_refused = 0;
  size_t next_result = 0;
  for (size_t item = 0; item < total; ++item) {
    if (next_refused < refused.size() && refused[next_refused].item == item) {
      visit(static_cast<uint32_t>(item), size_t{0}, &refused[next_refused++].status);
    } else {
      visit(static_cast<uint32_t>(item), next_result++, nullptr);
    }
  }
}

uint32_t ToMilliseconds(Nanos duration) {
  return static_cast<uint32_t>(std::clamp<Nanos>(duration / kMillisecond, 0, Nanos{UINT32_MAX}));
}

// Empty if the model has been removed since.
std::string NameOfModel(ModelSlot slot, const ModelRegistry& registry) {
  const ModelPtr model = registry.FindBySlot(slot);
  return model != nullptr ? model->definition.name : "";
}

void EncodeDescription(const kvcache::SequenceDescription& description,
                       const ModelRegistry& registry, v1::SequenceInfo* out) {
  out->set_sequence_id(description.sequence.value);
  out->set_model(NameOfModel(description.model, registry));
  out->set_owner(description.owner);
  out->set_committed_len(description.committed_len);
  out->mutable_layer_lens()->Assign(description.layer_lens.begin(), description.layer_lens.end());
  out->set_num_pages(description.num_pages);
  out->set_num_shared_pages(description.num_shared_pages);
  out->set_lease_remaining_ms(ToMilliseconds(description.lease_remaining));
}

}  // namespace

void EncodeOpen(const OpenCall& call, const OpenResult& result,
                const std::vector<RefusedItem>& refused, uint64_t server_epoch,
                v1::OpenSequencesResponse* out) {
  out->set_server_epoch(server_epoch);
  out->set_lease_ms(ToMilliseconds(call.lease));
  ForEachItem(
      result.items.size(), refused, [&](uint32_t item, size_t index, const absl::Status* refusal) {
        const absl::Status status = refusal != nullptr ? *refusal : result.items[index].status();
        out->add_sequence_ids(status.ok() ? result.items[index]->value : 0);
        if (!status.ok()) AddError(item, status, out);
      });
}

void EncodeFork(const ForkResult& result, v1::ForkSequencesResponse* out) {
  for (const SequenceId child : result.children) out->add_child_ids(child.value);
  for (size_t i = 0; i < result.items.size(); ++i) {
    if (!result.items[i].ok()) AddError(static_cast<uint32_t>(i), result.items[i], out);
  }
}

void EncodeTruncate(const TruncateResult& result, v1::TruncateSequencesResponse* out) {
  for (size_t i = 0; i < result.items.size(); ++i) {
    const absl::StatusOr<uint32_t>& item = result.items[i];
    out->add_committed_lens(item.ok() ? *item : 0);
    if (!item.ok()) AddError(static_cast<uint32_t>(i), item.status(), out);
  }
}

void EncodeClose(const CloseResult& result, const std::vector<RefusedItem>& refused,
                 v1::CloseSequencesResponse* out) {
  ForEachItem(result.items.size(), refused,
              [&](uint32_t item, size_t index, const absl::Status* refusal) {
                const absl::Status& status = refusal != nullptr ? *refusal : result.items[index];
                if (!status.ok()) AddError(item, status, out);
              });
}

void EncodeDescribe(const DescribeResult& result, const std::vector<RefusedItem>& refused,
                    const ModelRegistry& registry, v1::DescribeSequencesResponse* out) {
  ForEachItem(
      result.items.size(), refused, [&](uint32_t item, size_t index, const absl::Status* refusal) {
        v1::SequenceInfo* info = out->add_sequences();
        const absl::Status status = refusal != nullptr ? *refusal : result.items[index].status();
        if (!status.ok()) {
          AddError(item, status, out);
        } else {
          EncodeDescription(*result.items[index], registry, info);
        }
      });
}

void EncodeSummary(const kvcache::SequenceSummary& summary, const ModelRegistry& registry,
                   v1::SequenceSummary* out) {
  out->set_sequence_id(summary.sequence.value);
  out->set_model(NameOfModel(SlotOf(summary.sequence), registry));
  out->set_owner(summary.owner);
  out->set_committed_len(summary.committed_len);
  out->set_longest_len(summary.longest_len);
  out->set_num_pages(summary.num_pages);
  out->set_lease_remaining_ms(ToMilliseconds(summary.lease_remaining));
}

void EncodeRenew(const RenewResult& result, v1::RenewLeaseResponse* out) {
  out->set_lease_ms(ToMilliseconds(result.lease));
  out->set_num_sequences(result.renewal.num_sequences);
  for (const SequenceId lost : result.renewal.lost) out->add_lost_sequence_ids(lost.value);
}

}  // namespace attn::server
