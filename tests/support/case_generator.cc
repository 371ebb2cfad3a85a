#include "tests/support/case_generator.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/random.h"

namespace attn::test {
namespace {

// Bound on q_len × kv_len × query heads × dims of one case, so that the reference stays quick.
constexpr int64_t kMaxWork = 6'000'000;

uint32_t RandomHeadDim(Random& random) {
  if (random.Chance(0.6)) return random.OneOf({8u, 16u, 32u, 64u, 80u, 96u, 128u, 192u, 256u});
  return 8 * static_cast<uint32_t>(random.Integer(1, 32));
}

void DrawGeometry(Random& random, AttentionSpec& spec) {
  const auto dtype = [&] {
    return random.OneOf({DType::kFloat32, DType::kBFloat16, DType::kFloat16});
  };
  spec.num_layers = random.OneOf({1u, 1u, 2u, 3u});
  spec.num_kv_heads = random.OneOf({1u, 1u, 2u, 3u});
  spec.num_q_heads = spec.num_kv_heads * random.OneOf({1u, 2u, 3u, 4u, 5u, 7u, 8u});
  spec.head_dim_qk = RandomHeadDim(random);
  spec.head_dim_v = random.Chance(0.6) ? spec.head_dim_qk : RandomHeadDim(random);
  spec.activation_dtype = dtype();
  spec.kv_dtype = random.Chance(0.6) ? spec.activation_dtype : dtype();
  spec.page_size = random.OneOf({1u, 2u, 3u, 8u, 16u, 32u, 48u, 64u, 128u, 512u});
}

std::optional<uint32_t> RandomWindowSide(Random& random) {
  if (random.Chance(0.5)) return std::nullopt;
  if (random.Chance(0.2)) return random.OneOf({0u, 4294967295u});
  return random.OneOf({1u, 3u, 15u, 16u, 31u, 64u, 127u, 255u, 256u, 300u});
}

void DrawScore(Random& random, const AttentionSpec& spec, Values values, ScoreSpec& score) {
  const float default_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim_qk));
  score.softmax_scale =
      random.OneOf({default_scale, default_scale, default_scale, 0.05f, 1.0f, 0.0f, -0.2f});
  // Powers of two keep huge logits exact in float.
  if (values == Values::kHuge) score.softmax_scale = random.OneOf({0.25f, -0.25f, 0.125f});
  score.logit_soft_cap = random.OneOf({0.0f, 0.0f, 0.5f, 2.0f, 5.0f, 30.0f});
  score.window.left = RandomWindowSide(random);
  score.window.right = RandomWindowSide(random);
  score.sink_logits_per_head = random.OneOf({0u, 0u, 1u, 4u, 17u});
}

int32_t RandomKvLen(Random& random, uint32_t page_size) {
  const int32_t page = static_cast<int32_t>(page_size);
  if (random.Chance(0.3)) {
    const int32_t pages = static_cast<int32_t>(random.Integer(1, std::max(1, 300 / page)));
    return static_cast<int32_t>(std::max<int64_t>(0, pages * page + random.Integer(-1, 1)));
  }
  if (random.Chance(0.25)) return static_cast<int32_t>(random.Integer(0, 80));
  return random.OneOf(
      {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 511, 512, 513, 700});
}

int32_t RandomQLen(Random& random) {
  if (random.Chance(0.2)) return static_cast<int32_t>(random.Integer(1, 70));
  return random.OneOf({0, 1, 1, 2, 3, 7, 15, 16, 17, 31, 33, 48, 64, 65, 100, 130});
}

int64_t RandomQStart(Random& random, int32_t q_len, int32_t kv_len) {
  const int64_t bottom_right = int64_t{kv_len} - q_len;
  if (random.Chance(0.55)) return bottom_right;
  switch (random.Integer(0, 4)) {
    case 0:
      return 0;
    case 1:
      return -random.Integer(1, 40);
    case 2:
      return kv_len + random.Integer(0, 300);
    case 3:
      return random.OneOf({int64_t{-1} << 40, int64_t{1} << 40});
    default:
      return bottom_right + random.Integer(-20, 20);
  }
}

CaseItem RandomItem(Random& random, const AttentionSpec& spec, int64_t max_work) {
  CaseItem item;
  item.q_len = RandomQLen(random);
  item.kv_len = RandomKvLen(random, spec.page_size);
  const int64_t per_pair = int64_t{spec.num_q_heads} * (spec.head_dim_qk + spec.head_dim_v);
  while (item.q_len > 1 && item.q_len * per_pair * item.kv_len > max_work) item.q_len /= 2;
  item.q_start = RandomQStart(random, item.q_len, item.kv_len);
  item.layer = static_cast<uint32_t>(random.Integer(0, spec.num_layers - 1));
  item.out_dtype = random.Chance(0.5)
                       ? spec.activation_dtype
                       : random.OneOf({DType::kFloat32, DType::kBFloat16, DType::kFloat16});
  item.causal = random.Chance(0.65);
  item.use_sinks = random.Chance(0.7);
  item.wants_lse = random.Chance(0.85);
  return item;
}

// "edge", "edge-1" or "edge+1" if `length` is that close to a multiple of it.
std::string Near(int64_t length, int64_t edge, absl::string_view name) {
  for (const int64_t off : {0, -1, 1}) {
    if (length >= edge - 1 && (length - off) % edge == 0) {
      return absl::StrCat(name, off == 0 ? "" : off < 0 ? "-1" : "+1");
    }
  }
  return "";
}

std::string KvLenFeature(const AttentionSpec& spec, int32_t kv_len) {
  if (kv_len <= 1) return absl::StrCat(kv_len);
  if (const std::string near = Near(kv_len, 256, "tile"); !near.empty()) return near;
  if (spec.page_size > 3) {
    if (const std::string near = Near(kv_len, spec.page_size, "page"); !near.empty()) return near;
  }
  return kv_len < 256 ? "below tile" : "above tile";
}

std::string QLenFeature(int32_t q_len) {
  if (q_len <= 1 || (q_len >= 15 && q_len <= 17)) return absl::StrCat(q_len);
  return q_len <= 16 ? "few" : "many";
}

std::string QStartFeature(const CaseItem& item) {
  if (item.q_start == int64_t{item.kv_len} - item.q_len) return "bottom right";
  if (item.q_start < 0) return "negative";
  if (item.q_start >= item.kv_len) return "beyond";
  return "inside";
}

std::string ScaleFeature(float scale) {
  return scale == 0 ? "zero" : scale < 0 ? "negative" : "positive";
}

void AddItemFeatures(const AttentionSpec& spec, const CaseItem& item,
                     std::vector<std::string>& features) {
  features.push_back(absl::StrCat("q_len=", QLenFeature(item.q_len)));
  features.push_back(absl::StrCat("kv_len=", KvLenFeature(spec, item.kv_len)));
  features.push_back(absl::StrCat("q_start=", QStartFeature(item)));
  features.push_back(absl::StrCat("out=", NameOf(item.out_dtype)));
  features.push_back(absl::StrCat("causal=", item.causal));
  features.push_back(absl::StrCat("use_sinks=", item.use_sinks));
  features.push_back(absl::StrCat("lse=", item.wants_lse));
  features.push_back(absl::StrCat("layer=", item.layer));
}

}  // namespace

AttentionCase RandomCase(uint64_t seed, NarrowSpec narrow) {
  Random random(seed);
  AttentionCase result;
  result.seed = seed;
  result.values = random.OneOf({Values::kNormal, Values::kNormal, Values::kNormal, Values::kNormal,
                                Values::kHuge, Values::kTiny});
  DrawGeometry(random, result.spec);
  narrow(result.spec);
  DrawScore(random, result.spec, result.values, result.spec.score);
  const int64_t num_items = random.OneOf({1, 2, 3, 5});
  for (int64_t i = 0; i < num_items; ++i) {
    result.items.push_back(RandomItem(random, result.spec, kMaxWork / num_items));
  }
  FillSinkLogits(result);
  return result;
}

std::vector<std::string> FeaturesOf(const AttentionCase& attention_case) {
  const AttentionSpec& spec = attention_case.spec;
  const ScoreSpec& score = spec.score;
  const bool left = score.window.left.has_value();
  const bool right = score.window.right.has_value();
  std::vector<std::string> features = {
      absl::StrCat("group=", spec.group_size()),
      absl::StrCat("num_kv_heads=", spec.num_kv_heads),
      absl::StrCat("act=", NameOf(spec.activation_dtype)),
      absl::StrCat("kv=", NameOf(spec.kv_dtype)),
      absl::StrCat("page=", spec.page_size),
      absl::StrCat("layers=", spec.num_layers),
      absl::StrCat("dims=", spec.head_dim_qk == spec.head_dim_v  ? "same"
                            : spec.head_dim_qk < spec.head_dim_v ? "wider v"
                                                                 : "narrower v"),
      absl::StrCat("dim_qk=", spec.head_dim_qk % 64 == 0   ? "of 64"
                              : spec.head_dim_qk % 16 == 0 ? "of 16"
                                                           : "of 8"),
      absl::StrCat("window=", left && right ? "both"
                              : left        ? "left"
                              : right       ? "right"
                                            : "none"),
      absl::StrCat("cap=", score.logit_soft_cap),
      absl::StrCat("sinks=", score.sink_logits_per_head),
      absl::StrCat("scale=", ScaleFeature(score.softmax_scale)),
      absl::StrCat("values=", static_cast<int>(attention_case.values))};
  for (const CaseItem& item : attention_case.items) AddItemFeatures(spec, item, features);
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
  return features;
}

PairwiseCases SelectPairwise(uint64_t first_seed, int num_candidates, NarrowSpec narrow) {
  PairwiseCases selected;
  std::set<std::pair<std::string, std::string>> seen;
  for (int i = 0; i < num_candidates; ++i) {
    AttentionCase candidate = RandomCase(first_seed + static_cast<uint64_t>(i), narrow);
    const std::vector<std::string> features = FeaturesOf(candidate);
    const size_t seen_before = seen.size();
    for (size_t a = 0; a < features.size(); ++a) {
      for (size_t b = a + 1; b < features.size(); ++b) seen.insert({features[a], features[b]});
    }
    if (seen.size() > seen_before) selected.cases.push_back(std::move(candidate));
  }
  selected.pairs_covered = static_cast<int64_t>(seen.size());
  return selected;
}

}  // namespace attn::test
