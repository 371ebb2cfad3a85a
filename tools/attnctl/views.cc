#include "tools/attnctl/views.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <cctype>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tools/attnctl/metrics.h"
#include "tools/attnctl/text.h"

namespace attn::ctl {
namespace {

using Align = Table::Align;

std::string DTypeName(v1::DataType type) {
  std::string name = v1::DataType_Name(type);
  name = std::string(absl::StripPrefix(name, "DATA_TYPE_"));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// "32/8", or "32/8,16/4" where groups differ.
template <typename TextOf>
std::string OfGroups(const v1::ModelSpec& spec, TextOf text_of) {
  std::vector<std::string> texts;
  std::set<std::string> known;
  for (const v1::LayerGroup& group : spec.layer_groups()) {
    const std::string text = text_of(group);
    if (known.insert(text).second) texts.push_back(text);
  }
  return absl::StrJoin(texts, ",");
}

std::string HeadsOf(const v1::LayerGroup& group) {
  return absl::StrCat(group.num_q_heads(), "/", group.num_kv_heads());
}

std::string DimsOf(const v1::LayerGroup& group) {
  if (group.head_dim_v() == group.head_dim_qk()) return absl::StrCat(group.head_dim_qk());
  return absl::StrCat(group.head_dim_qk(), "/", group.head_dim_v());
}

std::string WindowOf(const v1::LayerGroup& group) {
  const auto side = [](bool has, uint32_t value) { return has ? absl::StrCat(value) : "-"; };
  const v1::Window& window = group.window();
  if (!window.has_left() && !window.has_right()) return "-";
  return absl::StrCat(side(window.has_left(), window.left()), ":",
                      side(window.has_right(), window.right()));
}

// In the unit that the name says.
std::string Shown(const std::string& name, double value) {
  if (absl::StrContains(name, "_bytes")) return Bytes(value);
  if (absl::StrContains(name, "_seconds")) return Seconds(value);
  return Whole(value);
}

std::string Shown(const std::string& name, const v1::Distribution& distribution) {
  const bool is_time = absl::StrContains(name, "_seconds");
  std::string text =
      absl::StrCat(Whole(Count(distribution)), " values, mean ",
                   is_time ? Seconds(Mean(distribution)) : Number(Mean(distribution)));
  for (const auto& [title, quantile] :
       {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)}) {
    const double value = (is_time ? Quantile : QuantileBound)(distribution, quantile).value_or(0);
    absl::StrAppend(
        &text, ", ", title,
        is_time ? absl::StrCat(" ", Seconds(value)) : absl::StrCat(" <= ", Number(value)));
  }
  return text;
}

std::string LabelsOf(const v1::MetricFamily& family, const v1::MetricSample& sample) {
  std::vector<std::string> labels;
  for (int i = 0; i < family.label_names_size(); ++i) {
    labels.push_back(absl::StrCat(family.label_names(i), "=", Printable(sample.label_values(i))));
  }
  return absl::StrJoin(labels, " ");
}

}  // namespace

std::string ModelsText(const v1::ListModelsResponse& models) {
  if (models.models().empty()) return "no models\n";
  Table table({{"MODEL"},
               {"LAYERS", Align::kRight},
               {"GROUPS", Align::kRight},
               {"HEADS Q/KV"},
               {"DIM"},
               {"WINDOW"},
               {"DTYPE"},
               {"PAGE", Align::kRight},
               {"BYTES/TOKEN", Align::kRight}});
  for (const v1::ModelInfo& model : models.models()) {
    const v1::ModelSpec& spec = model.spec();
    table.Add({Printable(spec.name()), absl::StrCat(spec.num_layers()),
               absl::StrCat(spec.layer_groups_size()), OfGroups(spec, HeadsOf),
               OfGroups(spec, DimsOf), OfGroups(spec, WindowOf), DTypeName(spec.activation_dtype()),
               absl::StrCat(spec.page_size()),
               Whole(static_cast<double>(model.kv_bytes_per_token()))});
  }
  return table.ToString();
}

std::string SequencesText(const v1::ListSequencesResponse& sequences) {
  if (sequences.sequences().empty()) return "no sequences\n";
  Table table({{"SEQUENCE", Align::kRight},
               {"MODEL"},
               {"OWNER"},
               {"TOKENS", Align::kRight},
               {"LONGEST LAYER", Align::kRight},
               {"PAGES", Align::kRight},
               {"LEASE LEFT", Align::kRight}});
  for (const v1::SequenceSummary& sequence : sequences.sequences()) {
    table.Add({absl::StrCat(sequence.sequence_id()), Printable(sequence.model()),
               Printable(sequence.owner()), absl::StrCat(sequence.committed_len()),
               absl::StrCat(sequence.longest_len()), absl::StrCat(sequence.num_pages()),
               Seconds(sequence.lease_remaining_ms() / 1e3)});
  }
  const char* const more =
      sequences.next_page_token().empty() ? "" : "There are more: see --limit.\n";
  return absl::StrCat(table.ToString(), more);
}

std::string StatsText(const v1::GetStatsResponse& stats, bool all) {
  Table table({{"METRIC"}, {"LABELS"}, {"VALUE"}});
  for (const v1::MetricFamily& family : stats.families()) {
    const std::string name(absl::StripPrefix(family.name(), "attn_"));
    for (const v1::MetricSample& sample : family.samples()) {
      const bool is_histogram = family.type() == v1::METRIC_TYPE_HISTOGRAM;
      const double value = is_histogram ? Count(sample.distribution()) : sample.value();
      if (value == 0 && !all) continue;
      table.Add({name, LabelsOf(family, sample),
                 is_histogram ? Shown(name, sample.distribution()) : Shown(name, value)});
    }
  }
  return table.ToString();
}

std::string MessageText(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return absl::InternalError(std::string(status.message()));
  return json;
}

}  // namespace attn::ctl
