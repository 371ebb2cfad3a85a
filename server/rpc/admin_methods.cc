#include "server/rpc/admin_methods.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/base/status_macros.h"
#include "server/core/metric_table.h"
#include "server/core/request_check.h"
#include "server/rpc/lifecycle_codec.h"
#include "server/rpc/model_codec.h"
#include "server/rpc/unknown_fields.h"

namespace attn::server {
namespace {

v1::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return v1::METRIC_TYPE_COUNTER;
    case MetricType::kGauge:
      return v1::METRIC_TYPE_GAUGE;
    case MetricType::kHistogram:
      return v1::METRIC_TYPE_HISTOGRAM;
  }
  return v1::METRIC_TYPE_UNSPECIFIED;
}

void EncodeSample(const MetricSample& sample, MetricType type, v1::MetricSample* out) {
  for (const std::string& label : sample.label_values) out->add_label_values(label);
  if (type != MetricType::kHistogram) return out->set_value(sample.value);
  const MetricDistribution& from = sample.distribution;
  v1::Distribution* const to = out->mutable_distribution();
  to->mutable_upper_bounds()->Assign(from.upper_bounds.begin(), from.upper_bounds.end());
  to->mutable_cumulative_counts()->Assign(from.cumulative_counts.begin(),
                                          from.cumulative_counts.end());
  to->set_sum(from.sum);
}

// A page token is the last id that was listed.
absl::StatusOr<SequenceId> DecodePageToken(const std::string& token) {
  if (token.empty()) return SequenceId(0);
  uint64_t last = 0;
  if (absl::SimpleAtoi(token, &last) && absl::StrCat(last) == token) return SequenceId(last);
  return MakeError(Reason::kInvalid, "page_token",
                   absl::StrCat("got ", Quoted(token), ", want the next_page_token of an answer"));
}

}  // namespace

absl::Status GetStatsMethod::Answer(const Request& request, const RpcContext& context,
                                    Response* out) {
  ATTN_RETURN_IF_ERROR(CheckKnown(request, ""));
  for (const MetricFamily& family : Snapshot(context.Sources())) {
    v1::MetricFamily* const shown = out->add_families();
    shown->set_name(family.name);
    shown->set_help(family.help);
    shown->set_type(TypeOf(family.type));
    for (const std::string& label : family.label_names) shown->add_label_names(label);
    for (const MetricSample& sample : family.samples) {
      EncodeSample(sample, family.type, shown->add_samples());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Decoded> ListSequencesMethod::Decode(Request* request, const RpcContext& context) {
  ATTN_RETURN_IF_ERROR(CheckKnown(*request, ""));
  ListCall call;
  if (!request->model().empty()) {
    const ModelPtr model = context.registry->FindByName(request->model());
    if (model == nullptr) return UnknownModel("model", request->model());
    call.which.model = model->slot;
  }
  call.which.owner = std::move(*request->mutable_owner());
  ATTN_ASSIGN_OR_RETURN(call.which.after, DecodePageToken(request->page_token()));
  call.which.max = PageSize(request->max_sequences(), context.limits.max_sequences_per_page) + 1;
  return Decoded(std::move(call));
}

void ListSequencesMethod::Encode(const RpcContext& context, const std::vector<RefusedItem>&,
                                 Call* call, Response* out) {
  const auto& sequences = std::get<ListResult>(call->result).sequences;
  const size_t max = std::get<ListCall>(call->request).which.max - 1;
  for (size_t i = 0; i < sequences.size() && i < max; ++i) {
    EncodeSummary(sequences[i], *context.registry, out->add_sequences());
  }
  if (sequences.size() > max) {
    out->set_next_page_token(absl::StrCat(sequences[max - 1].sequence.value));
  }
}

}  // namespace attn::server
