// A program with the engine in its own process, that compares what it gets with attention which it
// computes itself in double precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "attn/engine/engine.h"

namespace {

namespace ae = attn::engine;
constexpr uint32_t kQHeads = 4, kKvHeads = 2, kDim = 64, kTokens = 40;
constexpr float kScale = 0.125f;

std::vector<float> Normal(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The largest difference from `out`, [kTokens, kQHeads, kDim], of causal attention.
double WorstError(const std::vector<float>& q, const std::vector<float>& k,
                  const std::vector<float>& v, const std::vector<float>& out) {
  double worst = 0;
  for (size_t row = 0; row < kTokens; ++row) {
    for (size_t head = 0; head < kQHeads; ++head) {
      const size_t kv_head = head / (kQHeads / kKvHeads);
      const size_t at = (row * kQHeads + head) * kDim;
      std::vector<double> sums(kDim);
      double total = 0;
      for (size_t key = 0; key <= row; ++key) {
        const size_t kv = (key * kKvHeads + kv_head) * kDim;
        double dot = 0;
        for (size_t d = 0; d < kDim; ++d) dot += double{q[at + d]} * k[kv + d];
        const double weight = std::exp(kScale * dot);
        total += weight;
        for (size_t d = 0; d < kDim; ++d) sums[d] += weight * v[kv + d];
      }
      for (size_t d = 0; d < kDim; ++d) {
        worst = std::max(worst, std::abs(sums[d] / total - out[at + d]));
      }
    }
  }
  return worst;
}

ae::ModelSpec Model() {
  ae::LayerGroup group{.layers = {0}};
  group.spec.num_q_heads = kQHeads;
  group.spec.num_kv_heads = kKvHeads;
  group.spec.head_dim_qk = group.spec.head_dim_v = kDim;
  group.spec.score.softmax_scale = kScale;
  return {.name = "consumer", .num_layers = 1, .layer_groups = {group}};
}

// The worst error of a prompt that is appended and attended in one call; negative if that failed.
double Try(ae::Drive drive, uint32_t seed) {
  auto engine = ae::Engine::Create({.drive = drive, .kv_bytes = 16 << 20},
                                   attn::CreateCpuBackend({.num_threads = 2}).value());
  if (!engine.ok() || !(*engine)->DeclareModel(Model()).ok()) return -1;
  const auto id = (*engine)->Open("consumer", "consumer");
  if (!id.ok()) return -2;
  std::mt19937 random(seed);
  const auto q = Normal(random, kTokens * kQHeads * kDim);
  const auto k = Normal(random, kTokens * kKvHeads * kDim);
  const auto v = Normal(random, kTokens * kKvHeads * kDim);
  std::vector<float> out(q.size());
  const ae::AttendItem item = {.sequence = *id, .q_len = kTokens, .kv_new_len = kTokens};
  const auto result = (*engine)->Attend({.items = {&item, 1},
                                         .q = ae::BytesOf(q),
                                         .k = ae::BytesOf(k),
                                         .v = ae::BytesOf(v),
                                         .out = ae::WritableBytesOf(out)});
  if (!result.ok() || !result->FirstError().ok()) return -3;
  return WorstError(q, k, v, out);
}

}  // namespace

int main() {
  const uint32_t seed = std::random_device()();
  for (const ae::Drive drive : {ae::Drive::kCallers, ae::Drive::kOwnThread}) {
    const double error = Try(drive, seed);
    std::printf("seed %u, worst error %g\n", seed, error);
    if (!(error >= 0 && error < 1e-5)) return 1;
  }
  return 0;
}
