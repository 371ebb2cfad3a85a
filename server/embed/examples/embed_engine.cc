// An inference engine with attention in its own process: one sequence from prefill to a few decode
// steps over all layers, then a fork that reads without appending.
#include <cmath>
#include <cstdio>
#include <vector>

#include "attn/attention/cpu_backend.h"
#include "attn/engine/engine.h"

namespace ae = attn::engine;
constexpr uint32_t kLayers = 2, kQHeads = 8, kKvHeads = 2, kDim = 64, kPrompt = 100, kSteps = 8;

std::vector<float> Project(uint32_t rows, uint32_t heads, uint32_t seed) {
  std::vector<float> values(size_t{rows} * heads * kDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.1f * float(i * 7 + seed));
  return values;
}

// One layer step of `rows` new tokens behind `len`: appends their keys and values, attends.
absl::Status Step(ae::Engine& engine, attn::SequenceId id, uint32_t layer, uint32_t len,
                  uint32_t rows) {
  const auto q = Project(rows, kQHeads, len), k = Project(rows, kKvHeads, len + 1),
             v = Project(rows, kKvHeads, len + 2);
  std::vector<float> out(q.size()), lse(rows * kQHeads);
  const ae::AttendItem item = {id, layer, len, rows, rows};  // rows of q, rows of k and v
  ae::AttendRequest request;
  request.items = {&item, 1};
  request.q = ae::BytesOf(q);
  request.k = ae::BytesOf(k);
  request.v = ae::BytesOf(v);
  request.out = ae::WritableBytesOf(out);
  request.lse = absl::MakeSpan(lse);
  const absl::StatusOr<ae::AttendResult> result = engine.Attend(request);
  if (!result.ok()) return result.status();
  std::printf("layer %u, length %u, lse %.4f\n", layer, len + rows, lse.back());
  return result->FirstError();
}

absl::Status Run() {
  auto backend = attn::CreateCpuBackend({.num_threads = 1});
  if (!backend.ok()) return backend.status();
  auto engine = ae::Engine::Create({.kv_bytes = 64 << 20}, *std::move(backend));
  if (!engine.ok()) return engine.status();

  ae::LayerGroup group{.layers = {0, 1}};
  group.spec.num_q_heads = kQHeads;
  group.spec.num_kv_heads = kKvHeads;
  group.spec.head_dim_qk = group.spec.head_dim_v = kDim;
  group.spec.score.softmax_scale = 1 / std::sqrt(float(kDim));
  const auto model =
      (*engine)->DeclareModel({.name = "example", .num_layers = kLayers, .layer_groups = {group}});
  if (!model.ok()) return model.status();
  const auto id = (*engine)->Open("example", "embed_engine");
  if (!id.ok()) return id.status();
  for (uint32_t step = 0, len = 0; step <= kSteps; ++step) {
    const uint32_t rows = step == 0 ? kPrompt : 1;  // prefill, then one token at a time
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      if (absl::Status s = Step(**engine, *id, layer, len, rows); !s.ok()) return s;
    }
    len += rows;
  }
  const std::vector<ae::ForkItem> fork = {{.parent = *id, .at_len = kPrompt, .num_children = 2}};
  const auto children = (*engine)->Fork(fork);
  if (!children.ok()) return children.status();
  if (!children->front().ok()) return children->front().status();
  std::printf("%zu children of the prompt\n", children->front()->size());
  return (*engine)->Close({*id}).status();
}

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
