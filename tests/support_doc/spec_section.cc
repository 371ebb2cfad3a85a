// Specs that differ from one good spec in one thing, and what each backend says to them.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/attention/attention_spec.h"
#include "attn/base/error.h"
#include "tests/support_doc/backend_rules.h"
#include "tests/support_doc/markdown.h"
#include "tests/support_doc/sections.h"

namespace attn::test {
namespace {

constexpr BackendRule kRules[] = {kCpuRule, kCudaRule};

// Computed by every backend.
AttentionSpec GoodSpec() { return SpecOf(32, 8, 128, DType::kBFloat16); }

struct Range {
  const char* question;
  uint32_t scan_end;  // values 1 .. scan_end - 1 are tried one by one
  void (*apply)(AttentionSpec& spec, uint32_t value);
};

constexpr uint32_t kHuge = 1u << 20;  // if this is taken as well, nothing is the limit

const Range kRanges[] = {
    {"`head_dim_qk`", 1025, [](AttentionSpec& s, uint32_t v) { s.head_dim_qk = v; }},
    {"`head_dim_v`", 1025, [](AttentionSpec& s, uint32_t v) { s.head_dim_v = v; }},
    {"`page_size`", 1u << 17, [](AttentionSpec& s, uint32_t v) { s.page_size = v; }},
    {"query heads of a KV head, 1 KV head (`num_q_heads`)", 4097,
     [](AttentionSpec& s, uint32_t v) { s.num_q_heads = v, s.num_kv_heads = 1; }},
    {"`num_q_heads`, as many KV heads", 4097,
     [](AttentionSpec& s, uint32_t v) { s.num_q_heads = s.num_kv_heads = v; }},
    {"layers of a group (`num_layers`)", 8193,
     [](AttentionSpec& s, uint32_t v) { s.num_layers = v; }},
};

std::string RangeCell(const Range& range, const BackendRule& rule) {
  const auto ask = [&](uint32_t value) {
    AttentionSpec spec = GoodSpec();
    range.apply(spec, value);
    return rule.supports(spec);
  };
  if (ask(kHuge).ok()) return "any";
  std::vector<uint32_t> computed;
  for (uint32_t value = 1; value < range.scan_end; ++value) {
    if (ask(value).ok()) computed.push_back(value);
  }
  const uint32_t past = computed.empty() ? 1 : computed.back() + 1;
  return absl::StrCat(Runs(computed), "; else `", FieldOf(ask(past)), "`");
}

struct Probe {
  std::string question;
  std::function<void(AttentionSpec&)> apply;
};

std::vector<Probe> DTypeProbes() {
  std::vector<Probe> probes;
  const DType dtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (const DType activation : dtypes) {
    for (const DType kv : dtypes) {
      probes.push_back(
          {absl::StrCat("q, k, v as ", NameOf(activation), ", cache ", NameOf(kv)),
           [=](AttentionSpec& s) { s.activation_dtype = activation, s.kv_dtype = kv; }});
    }
  }
  return probes;
}

void AddSinks(AttentionSpec& spec, uint32_t per_head) {
  spec.score.sink_logits_per_head = per_head;
  spec.score.sink_logits.assign(size_t{spec.num_layers} * spec.num_q_heads * per_head, 0.5f);
}

std::vector<Probe> VariantProbes() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {
      {"one KV head for all query heads (MQA)", [](AttentionSpec& s) { s.num_kv_heads = 1; }},
      {"grouped heads, also 7 to 1 (GQA)",
       [](AttentionSpec& s) { s.num_q_heads = 14, s.num_kv_heads = 2; }},
      {"as many KV heads as query heads (MHA)",
       [](AttentionSpec& s) { s.num_kv_heads = s.num_q_heads; }},
      {"heads that do not divide (10 over 4)",
       [](AttentionSpec& s) { s.num_q_heads = 10, s.num_kv_heads = 4; }},
      {"Dv < D (64 under 128)", [](AttentionSpec& s) { s.head_dim_v = 64; }},
      {"Dv > D (128 over 64)", [](AttentionSpec& s) { s.head_dim_qk = 64; }},
      {"softmax scale 0 or negative", [](AttentionSpec& s) { s.score.softmax_scale = -0.5f; }},
      {"softmax scale not finite", [=](AttentionSpec& s) { s.score.softmax_scale = kInfinity; }},
      {"window with a left side", [](AttentionSpec& s) { s.score.window.left = 1023; }},
      {"window with a right side", [](AttentionSpec& s) { s.score.window.right = 7; }},
      {"window with both sides, also (0, 0)",
       [](AttentionSpec& s) { s.score.window.left = s.score.window.right = 0; }},
      {"soft cap", [](AttentionSpec& s) { s.score.logit_soft_cap = 30; }},
      {"soft cap negative", [](AttentionSpec& s) { s.score.logit_soft_cap = -1; }},
      {"one sink logit a head", [](AttentionSpec& s) { AddSinks(s, 1); }},
      {"17 sink logits a head", [](AttentionSpec& s) { AddSinks(s, 17); }},
      {"too few sink logits", [](AttentionSpec& s) { s.score.sink_logits_per_head = 1; }},
      {"a sink logit that is not finite",
       [](AttentionSpec& s) {
         AddSinks(s, 1);
         s.score.sink_logits[5] = NAN;
       }},
      {"all at once: window, soft cap, 2 sink logits, scale 0.05",
       [](AttentionSpec& s) {
         AddSinks(s, 2);
         s.score.window.left = 127;
         s.score.logit_soft_cap = 30;
         s.score.softmax_scale = 0.05f;
       }},
  };
}

std::string ProbeRows(const std::vector<Probe>& probes) {
  std::string rows;
  for (const Probe& probe : probes) {
    std::vector<std::string> cells = {probe.question};
    for (const BackendRule& rule : kRules) {
      AttentionSpec spec = GoodSpec();
      probe.apply(spec);
      cells.push_back(Verdict(rule.supports(spec)));
    }
    rows += TableRow(cells);
  }
  return rows;
}

std::string RangeRows() {
  std::string rows;
  for (const Range& range : kRanges) {
    std::vector<std::string> cells = {range.question};
    for (const BackendRule& rule : kRules) cells.push_back(RangeCell(range, rule));
    rows += TableRow(cells);
  }
  return rows;
}

std::string ProbeTable(const char* about, const std::vector<Probe>& probes) {
  return absl::StrCat("\n", TableHead({about, kRules[0].name, kRules[1].name}), ProbeRows(probes));
}

}  // namespace

std::string SpecSection() {
  return absl::StrCat(
      "## Specs, by backend\n\n"
      "Answers of `Backend::Supports` to a spec of 32 / 8 heads, dims of 128, bfloat16 and pages "
      "of 16 in which one thing is changed. A refusal names the field that stands behind it.\n\n",
      TableHead({"values taken", kRules[0].name, kRules[1].name}), RangeRows(),
      ProbeTable("dtypes", DTypeProbes()), ProbeTable("variant", VariantProbes()),
      "\nEvery backend computes, for every spec that it takes: causal and bidirectional items side "
      "by side, any position of the rows (negative and beyond the keys too), any number of query "
      "rows and keys, outputs as float32, float16 or bfloat16, the log-sum-exp or not, sink logits "
      "left out item by item. Those belong to items and not to specs; `conformance_test` compares "
      "them with the reference on either backend.\n");
}

}  // namespace attn::test
