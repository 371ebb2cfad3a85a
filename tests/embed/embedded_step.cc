#include "tests/embed/embedded_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attn/base/check.h"

namespace attn::engine {
namespace {

constexpr float kScale = 0.5f;

void AddRandom(test::Random& random, size_t count, std::vector<float>* values) {
  for (size_t i = 0; i < count; ++i) values->push_back(static_cast<float>(random.Normal()));
}

}  // namespace

ModelSpec TestModel() {
  LayerGroup group{.layers = {0, 1}};
  group.spec.num_q_heads = kTestQHeads;
  group.spec.head_dim_qk = group.spec.head_dim_v = kTestDim;
  group.spec.score.softmax_scale = kScale;
  return {.name = "model", .num_layers = kTestLayers, .page_size = 4, .layer_groups = {group}};
}

std::unique_ptr<Engine> TestEngine(EngineOptions options,
                                   std::shared_ptr<test::FakeDevice> device) {
  options.kv_bytes = 4 << 20;
  if (device == nullptr) device = std::make_shared<test::FakeDevice>();
  auto engine = Engine::Create(options, test::CreateFakeBackend(std::move(device)));
  ATTN_CHECK(engine.ok(), engine.status().ToString());
  const absl::StatusOr<ModelInfo> declared = (*engine)->DeclareModel(TestModel());
  ATTN_CHECK(declared.ok(), declared.status().ToString());
  return *std::move(engine);
}

AttendItem& EmbeddedStep::Add(SequenceId sequence, uint32_t layer, KeptLayer& kept, uint32_t q_len,
                              uint32_t kv_new_len) {
  AttendItem item;
  item.sequence = sequence;
  item.layer = layer;
  item.expected_len = kept.len();
  item.q_len = q_len;
  item.kv_new_len = kv_new_len;
  items_.push_back(item);
  const size_t first_new = k_.size();
  AddRandom(random_, size_t{kv_new_len} * kTestDim, &k_);
  AddRandom(random_, size_t{kv_new_len} * kTestDim, &v_);
  kept.k.insert(kept.k.end(), k_.begin() + static_cast<std::ptrdiff_t>(first_new), k_.end());
  kept.v.insert(kept.v.end(), v_.begin() + static_cast<std::ptrdiff_t>(first_new), v_.end());
  rows_.push_back({q_.size() / (kTestQHeads * kTestDim), q_len});
  AddRandom(random_, size_t{q_len} * kTestQHeads * kTestDim, &q_);
  Expect(kept, q_len);
  return items_.back();
}

void EmbeddedStep::Expect(const KeptLayer& kept, uint32_t q_len) {
  const size_t first_row = rows_.back().first * kTestQHeads;
  for (size_t row = 0; row < size_t{q_len} * kTestQHeads; ++row) {
    const float* const q = q_.data() + (first_row + row) * kTestDim;
    const size_t num_visible = kept.len() - q_len + row / kTestQHeads + 1;
    double sum = 0;
    double out[kTestDim] = {};
    for (size_t key = 0; key < num_visible; ++key) {
      double dot = 0;
      for (size_t d = 0; d < kTestDim; ++d) dot += double{q[d]} * kept.k[key * kTestDim + d];
      const double weight = std::exp(kScale * dot);
      sum += weight;
      for (size_t d = 0; d < kTestDim; ++d) out[d] += weight * kept.v[key * kTestDim + d];
    }
    for (const double value : out) expected_out_.push_back(value / sum);
    expected_lse_.push_back(std::log(sum));
  }
}

AttendRequest EmbeddedStep::Request() {
  out_.assign(q_.size(), 0.0f);
  lse_.assign(q_.size() / kTestDim, 0.0f);
  AttendRequest request;
  request.items = items_;
  request.q = BytesOf(q_);
  request.k = BytesOf(k_);
  request.v = BytesOf(v_);
  request.out = WritableBytesOf(out_);
  request.lse = absl::MakeSpan(lse_);
  return request;
}

bool EmbeddedStep::IsRight(size_t item) const {
  const auto near = [](float got, double want) { return std::abs(got - want) < 1e-5; };
  const size_t begin = rows_[item].first * kTestQHeads;
  const size_t end = begin + rows_[item].count * kTestQHeads;
  for (size_t row = begin; row < end; ++row) {
    if (!near(lse_[row], expected_lse_[row])) return false;
  }
  for (size_t i = begin * kTestDim; i < end * kTestDim; ++i) {
    if (!near(out_[i], expected_out_[i])) return false;
  }
  return true;
}

bool EmbeddedStep::IsNan(size_t item) const {
  const auto begin = static_cast<std::ptrdiff_t>(rows_[item].first * kTestQHeads);
  const auto end = begin + static_cast<std::ptrdiff_t>(rows_[item].count * kTestQHeads);
  const auto nan = [](float value) { return std::isnan(value); };
  return std::all_of(lse_.begin() + begin, lse_.begin() + end, nan) &&
         std::all_of(out_.begin() + begin * kTestDim, out_.begin() + end * kTestDim, nan);
}

}  // namespace attn::engine
