// A registry with two models and a well-formed request for them: what every codec test starts from.
#pragma once

#include <cstdint>
#include <string>

#include "attn/v1/attention.pb.h"
#include "server/core/model_registry.h"
#include "server/core/wire_limits.h"
#include "server/rpc/decode.h"
#include "server/rpc/model_codec.h"

namespace attn::test {

// "small": layers 0 and 1, fp32, 4/2 heads, head dims 8/8, layer 1 windowed.
// "mixed": layer 0 as those of "small", layer 1 with 4/4 heads.
class CodecWorld {
 public:
  static constexpr uint64_t kEpoch = 77;
  static constexpr uint32_t kQHeads = 4;
  static constexpr uint32_t kKvHeads = 2;
  static constexpr uint32_t kHeadDim = 8;

  CodecWorld();

  server::DecodeContext Unary() const { return {limits, registry, kEpoch, nullptr}; }
  server::DecodeContext InStream() { return {limits, registry, kEpoch, &aliases}; }
  uint64_t SmallId(uint64_t counter) const { return MakeSequenceId(ModelSlot(1), counter).value; }
  uint64_t MixedId(uint64_t counter) const { return MakeSequenceId(ModelSlot(2), counter).value; }

  server::WireLimits limits;
  server::ModelRegistry registry;
  server::AliasNotes aliases;
};

v1::ModelSpec SmallSpec();
v1::ModelSpec MixedSpec();
absl::Status SupportsAll(const AttentionSpec& spec);

// `num_items` items of "small": layer 0, one new token and one query row each at length 3.
v1::AttendRequest GoodAttend(const CodecWorld& world, int num_items);
// fp32 tensor [rows, heads, 8] of counting numbers.
void FillTensor(int64_t rows, int64_t heads, v1::Tensor* tensor);

}  // namespace attn::test
