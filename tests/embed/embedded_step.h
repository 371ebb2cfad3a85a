// Attend requests of an embedder with random tensors, and what must come out of them: attention in
// double precision over the keys and values that the test itself has kept.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attn/engine/engine.h"
#include "tests/support/fake_backend.h"
#include "tests/support/random.h"

namespace attn::engine {

inline constexpr uint32_t kTestLayers = 2;
inline constexpr uint32_t kTestQHeads = 2;
inline constexpr uint32_t kTestDim = 4;

// "model" of two layers, two query heads on one KV head.
ModelSpec TestModel();
// An engine on a fake device with the model declared.
std::unique_ptr<Engine> TestEngine(EngineOptions options = {},
                                   std::shared_ptr<test::FakeDevice> device = nullptr);

// Keys and values of one (sequence, layer).
struct KeptLayer {
  std::vector<float> k;
  std::vector<float> v;
  uint32_t len() const { return static_cast<uint32_t>(k.size() / kTestDim); }
};

// One call. Lives until its answer is there.
class EmbeddedStep {
 public:
  explicit EmbeddedStep(uint64_t seed) : random_(seed) {}

  // Appends `kv_new_len` tokens, to `kept` as well, and attends with q_len rows that end there.
  AttendItem& Add(SequenceId sequence, uint32_t layer, KeptLayer& kept, uint32_t q_len,
                  uint32_t kv_new_len);
  AttendRequest Request();

  // True if rows and LSE of this item are right.
  bool IsRight(size_t item) const;
  bool IsNan(size_t item) const;

 private:
  struct Rows {
    size_t first = 0;
    size_t count = 0;
  };
  void Expect(const KeptLayer& kept, uint32_t q_len);

  test::Random random_;
  std::vector<AttendItem> items_;
  std::vector<Rows> rows_;
  std::vector<float> q_, k_, v_, out_, lse_;
  std::vector<double> expected_out_, expected_lse_;
};

}  // namespace attn::engine
