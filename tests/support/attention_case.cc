#include "tests/support/attention_case.h"

#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "attn/base/status_macros.h"
#include "tests/support/random.h"

namespace attn::test {
namespace {

constexpr uint64_t kSinkStream = 0x51a1c5;

std::string OptionalText(const std::optional<uint32_t>& value) {
  return value.has_value() ? absl::StrCat(*value) : "-";
}

absl::string_view NameOf(Values values) {
  switch (values) {
    case Values::kNormal:
      return "normal";
    case Values::kHuge:
      return "huge";
    case Values::kTiny:
      return "tiny";
  }
  return "";
}

using Fields = std::map<std::string, std::string>;

Fields Split(absl::string_view text, char between) {
  Fields fields;
  for (const absl::string_view part : absl::StrSplit(text, between, absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    fields.insert(field);
  }
  return fields;
}

// Reads fields by name and remembers the first that is missing or malformed.
class FieldReader {
 public:
  explicit FieldReader(Fields fields) : fields_(std::move(fields)) {}

  template <typename Int>
  void Integer(const char* name, Int& to) {
    if (!absl::SimpleAtoi(Text(name), &to)) Fail(name);
  }
  void Bool(const char* name, bool& to) {
    if (!absl::SimpleAtob(Text(name), &to)) Fail(name);
  }
  void Float(const char* name, float& to) {
    if (!absl::SimpleAtof(Text(name), &to)) Fail(name);
  }
  void Optional(const char* name, std::optional<uint32_t>& to) {
    if (Text(name) != "-") Integer(name, to.emplace());
  }
  template <typename Enum>
  void Name(const char* name, std::initializer_list<Enum> choices, Enum& to) {
    for (const Enum choice : choices) {
      if (Text(name) == NameOf(choice)) {
        to = choice;
        return;
      }
    }
    Fail(name);
  }
  const std::string& Text(const char* name) { return fields_[name]; }
  absl::Status status() const { return status_; }

 private:
  void Fail(const char* name) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(name, ": got '", fields_[name], "'"));
    }
  }

  Fields fields_;
  absl::Status status_;
};

constexpr std::initializer_list<DType> kDTypes = {DType::kFloat32, DType::kFloat16,
                                                  DType::kBFloat16};

std::string ToText(const CaseItem& item) {
  return absl::StrCat("q=", item.q_len, ",kv=", item.kv_len, ",start=", item.q_start,
                      ",layer=", item.layer, ",out=", NameOf(item.out_dtype),
                      ",causal=", item.causal, ",use_sinks=", item.use_sinks,
                      ",lse=", item.wants_lse, ";");
}

absl::StatusOr<CaseItem> ItemFromText(absl::string_view text) {
  FieldReader reader(Split(text, ','));
  CaseItem item;
  reader.Integer("q", item.q_len);
  reader.Integer("kv", item.kv_len);
  reader.Integer("start", item.q_start);
  reader.Integer("layer", item.layer);
  reader.Name("out", kDTypes, item.out_dtype);
  reader.Bool("causal", item.causal);
  reader.Bool("use_sinks", item.use_sinks);
  reader.Bool("lse", item.wants_lse);
  ATTN_RETURN_IF_ERROR(reader.status());
  return item;
}

// Values of one tensor; `element` draws one.
template <typename F>
std::vector<char> Fill(DType dtype, size_t count, const F& element) {
  std::vector<char> tensor(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    StoreFromFloat(dtype, tensor.data(), static_cast<int64_t>(i), static_cast<float>(element()));
  }
  return tensor;
}

}  // namespace

std::string ToLine(const AttentionCase& attention_case) {
  const AttentionSpec& spec = attention_case.spec;
  const ScoreSpec& score = spec.score;
  std::string line = absl::StrFormat(
      "seed=%u layers=%u hq=%u hk=%u d=%u dv=%u act=%s kv=%s page=%u scale=%.9g cap=%.9g left=%s "
      "right=%s sinks=%u values=%s items=",
      attention_case.seed, spec.num_layers, spec.num_q_heads, spec.num_kv_heads, spec.head_dim_qk,
      spec.head_dim_v, NameOf(spec.activation_dtype), NameOf(spec.kv_dtype), spec.page_size,
      score.softmax_scale, score.logit_soft_cap, OptionalText(score.window.left),
      OptionalText(score.window.right), score.sink_logits_per_head, NameOf(attention_case.values));
  for (const CaseItem& item : attention_case.items) absl::StrAppend(&line, ToText(item));
  return line;
}

absl::StatusOr<AttentionCase> CaseFromLine(absl::string_view line) {
  FieldReader reader(Split(line, ' '));
  AttentionCase result;
  AttentionSpec& spec = result.spec;
  reader.Integer("seed", result.seed);
  reader.Integer("layers", spec.num_layers);
  reader.Integer("hq", spec.num_q_heads);
  reader.Integer("hk", spec.num_kv_heads);
  reader.Integer("d", spec.head_dim_qk);
  reader.Integer("dv", spec.head_dim_v);
  reader.Name("act", kDTypes, spec.activation_dtype);
  reader.Name("kv", kDTypes, spec.kv_dtype);
  reader.Integer("page", spec.page_size);
  reader.Float("scale", spec.score.softmax_scale);
  reader.Float("cap", spec.score.logit_soft_cap);
  reader.Optional("left", spec.score.window.left);
  reader.Optional("right", spec.score.window.right);
  reader.Integer("sinks", spec.score.sink_logits_per_head);
  reader.Name("values", {Values::kNormal, Values::kHuge, Values::kTiny}, result.values);
  ATTN_RETURN_IF_ERROR(reader.status());
  for (const absl::string_view text :
       absl::StrSplit(reader.Text("items"), ';', absl::SkipEmpty())) {
    ATTN_ASSIGN_OR_RETURN(const CaseItem item, ItemFromText(text));
    result.items.push_back(item);
  }
  FillSinkLogits(result);
  return result;
}

void FillSinkLogits(AttentionCase& attention_case) {
  AttentionSpec& spec = attention_case.spec;
  Random random(attention_case.seed ^ kSinkStream);
  spec.score.sink_logits.resize(size_t{spec.num_layers} * spec.num_q_heads *
                                spec.score.sink_logits_per_head);
  for (float& logit : spec.score.sink_logits) logit = static_cast<float>(2 * random.Normal());
}

size_t Problem::QElements(size_t item) const { return LseElements(item) * spec.head_dim_qk; }
size_t Problem::OutElements(size_t item) const { return LseElements(item) * spec.head_dim_v; }
size_t Problem::LseElements(size_t item) const {
  return static_cast<size_t>(items[item].q_len) * spec.num_q_heads;
}

Problem MakeProblem(const AttentionCase& attention_case) {
  Problem problem{attention_case.spec, attention_case.items, {}};
  const AttentionSpec& spec = problem.spec;
  const DType dtype = spec.activation_dtype;
  Random random(attention_case.seed);
  const auto normal = [&] { return random.Normal(); };
  const auto huge = [&] { return 32.0 * static_cast<double>(random.Integer(-8, 8)); };
  const bool is_half = dtype == DType::kFloat16;
  const auto tiny = [&] { return random.Normal() * (is_half ? 0x1p-16 : 0x1p-130); };
  // Against subnormal half-precision keys these make logits that matter.
  const auto against_tiny = [&] { return random.Normal() * (is_half ? 0x1p+13 : 1.0); };
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const size_t num_keys = static_cast<size_t>(problem.items[i].kv_len) * spec.num_kv_heads;
    const size_t q_count = problem.QElements(i);
    const size_t k_count = num_keys * spec.head_dim_qk;
    const size_t v_count = num_keys * spec.head_dim_v;
    ItemTensors tensors;
    switch (attention_case.values) {
      case Values::kNormal:
        tensors = {Fill(dtype, q_count, normal), Fill(dtype, k_count, normal),
                   Fill(dtype, v_count, normal)};
        break;
      case Values::kHuge:
        tensors = {Fill(dtype, q_count, huge), Fill(dtype, k_count, huge),
                   Fill(dtype, v_count, normal)};
        break;
      case Values::kTiny:
        tensors = {Fill(dtype, q_count, against_tiny), Fill(dtype, k_count, tiny),
                   Fill(dtype, v_count, tiny)};
        break;
    }
    problem.tensors.push_back(std::move(tensors));
  }
  return problem;
}

std::vector<char> NormalTensor(DType dtype, size_t count, uint64_t seed, double scale) {
  Random random(seed);
  return Fill(dtype, count, [&] { return scale * random.Normal(); });
}

}  // namespace attn::test
