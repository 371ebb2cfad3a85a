// A batch for a backend as plain values, printable as one line from which it can be made again,
// and the tensors that belong to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/reference/reference_attention.h"
#include "attn/attention/attention_spec.h"
#include "attn/base/dtype.h"

namespace attn::test {

// What the tensors hold.
enum class Values {
  kNormal,  // variance 1
  kHuge,  // logits up to about 1e5 that float holds exactly, so that only the softmax can be wrong
  kTiny,  // subnormals of the 16-bit types in k and v
};

// One sequence with one item on one layer.
struct CaseItem {
  int32_t q_len = 1;
  int32_t kv_len = 1;
  int64_t q_start = 0;
  uint32_t layer = 0;
  DType out_dtype = DType::kFloat32;
  bool causal = true;
  bool use_sinks = true;
  bool wants_lse = true;

  reference::Item AsReferenceItem() const {
    return {q_start, q_len, kv_len, layer, causal, use_sinks};
  }
};

struct AttentionCase {
  uint64_t seed = 0;  // of the tensors and of the sink logits
  AttentionSpec spec;
  Values values = Values::kNormal;
  std::vector<CaseItem> items;
};

std::string ToLine(const AttentionCase& attention_case);
// The inverse of ToLine.
absl::StatusOr<AttentionCase> CaseFromLine(absl::string_view line);

// Draws [num_layers, num_q_heads, sink_logits_per_head] sink logits from the case's seed.
void FillSinkLogits(AttentionCase& attention_case);

// Tensors of one item in the activation dtype, contiguous:
// q [q_len, num_q_heads, head_dim_qk], k and v [kv_len, num_kv_heads, head_dim_qk or head_dim_v].
struct ItemTensors {
  std::vector<char> q;
  std::vector<char> k;
  std::vector<char> v;
};

// What a run needs: spec, items, and a tensor set for each.
struct Problem {
  AttentionSpec spec;
  std::vector<CaseItem> items;
  std::vector<ItemTensors> tensors;  // [items.size()]

  size_t QElements(size_t item) const;
  size_t OutElements(size_t item) const;
  size_t LseElements(size_t item) const;
};

Problem MakeProblem(const AttentionCase& attention_case);

// `count` values of `dtype`, normal with variance `scale`².
std::vector<char> NormalTensor(DType dtype, size_t count, uint64_t seed, double scale = 1.0);

}  // namespace attn::test
