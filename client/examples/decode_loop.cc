// One sequence from prefill to a few decode steps over all layers, with LSE: the calls an inference
// engine makes. Usage: decode_loop host:port
#include <cmath>
#include <cstdio>
#include <vector>

#include "attn/client/client.h"

namespace ac = attn::client;
constexpr uint32_t kLayers = 2, kQHeads = 8, kKvHeads = 2, kDim = 64, kPrompt = 100, kSteps = 8;

std::vector<float> Project(uint32_t rows, uint32_t heads, uint32_t seed) {
  std::vector<float> values(size_t{rows} * heads * kDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.1f * float(i * 7 + seed));
  return values;
}

// One layer step of `rows` new tokens behind `len`: appends their keys and values, attends.
absl::Status Step(ac::Stream& stream, attn::SequenceId id, uint32_t layer, uint32_t len,
                  uint32_t rows) {
  const auto q = Project(rows, kQHeads, len), k = Project(rows, kKvHeads, len + 1),
             v = Project(rows, kKvHeads, len + 2);
  ac::AttendRequest request;
  request.items = {{id, layer, len, rows, rows}};  // rows of q, rows of k and v
  request.q = ac::BytesOf(q);
  request.k = ac::BytesOf(k);
  request.v = ac::BytesOf(v);
  request.return_lse = true;
  const absl::StatusOr<ac::AttendResult> result = stream.Attend(request).get();
  if (!result.ok()) return result.status();
  if (absl::Status status = result->FirstError(); !status.ok()) return status;
  std::printf("layer %u, length %u, lse %.4f\n", layer, len + rows, result->lse.back());
  return absl::OkStatus();
}

absl::Status Run(const char* target) {
  auto client = ac::Client::Connect(target);
  if (!client.ok()) return client.status();
  const ac::LayerGroup group{{0, 1}, kQHeads, kKvHeads, kDim};
  const auto model =
      (*client)->DeclareModel({.name = "example", .num_layers = kLayers, .layer_groups = {group}});
  if (!model.ok()) return model.status();
  const auto id = (*client)->Open("example", "decode_loop");
  if (!id.ok()) return id.status();
  const auto stream = (*client)->OpenStream();
  for (uint32_t step = 0, len = 0; step <= kSteps; ++step) {
    const uint32_t rows = step == 0 ? kPrompt : 1;  // prefill, then one token at a time
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      if (absl::Status s = Step(*stream, *id, layer, len, rows); !s.ok()) return s;
    }
    len += rows;
  }
  return (*client)->Close({*id}).status();
}

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "127.0.0.1:50051");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
