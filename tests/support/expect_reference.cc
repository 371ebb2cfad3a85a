#include "tests/support/expect_reference.h"

#include <cmath>
#include <map>
#include <memory>

#include "attn/attention/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/support/tolerance.h"

namespace attn::test {

Backend& CpuBackendOf(int num_threads) {
  static auto* const backends = new std::map<int, std::unique_ptr<Backend>>();
  std::unique_ptr<Backend>& backend = (*backends)[num_threads];
  if (backend == nullptr) backend = CreateCpuBackend({.num_threads = num_threads}).value();
  return *backend;
}

AttentionSpec SpecOf(uint32_t num_q_heads, uint32_t num_kv_heads, uint32_t head_dim, DType dtype) {
  AttentionSpec spec;
  spec.num_q_heads = num_q_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_dim_qk = head_dim;
  spec.head_dim_v = head_dim;
  spec.activation_dtype = dtype;
  spec.kv_dtype = dtype;
  spec.score.softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return spec;
}

AttentionCase BottomRightCase(const AttentionSpec& spec, const std::vector<Lengths>& items,
                              uint64_t seed) {
  AttentionCase result;
  result.seed = seed;
  result.spec = spec;
  for (const Lengths& lengths : items) {
    CaseItem item;
    item.q_len = lengths.q_len;
    item.kv_len = lengths.kv_len;
    item.q_start = int64_t{lengths.kv_len} - lengths.q_len;
    item.out_dtype = spec.activation_dtype;
    result.items.push_back(item);
  }
  FillSinkLogits(result);
  return result;
}

void ExpectReference(Backend& backend, const Problem& problem, const Layout& layout) {
  const absl::StatusOr<std::vector<ItemOutput>> outputs = RunOnBackend(backend, problem, layout);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (size_t i = 0; i < problem.items.size(); ++i) {
    EXPECT_TRUE(IsWithinTolerance(problem, i, ExpectedOf(problem, i), (*outputs)[i]));
  }
}

void ExpectReference(const Problem& problem) {
  ExpectReference(CpuBackendOf(2), problem);
  for (const CaseItem& item : problem.items) {
    if (ClassOf(static_cast<uint32_t>(item.q_len)) == RowClass::kPrefill) return;
  }
  ExpectReference(CpuBackendOf(2), problem, {.row_class = RowClass::kPrefill});
}

void ExpectReference(const AttentionCase& attention_case) {
  SCOPED_TRACE(ToLine(attention_case));
  ExpectReference(MakeProblem(attention_case));
}

void SetElement(const Problem& problem, std::vector<char>& tensor, size_t index, float value) {
  StoreFromFloat(problem.spec.activation_dtype, tensor.data(), static_cast<int64_t>(index), value);
}

void FillTensor(const Problem& problem, std::vector<char>& tensor, float value) {
  const size_t count = tensor.size() / SizeOf(problem.spec.activation_dtype);
  for (size_t i = 0; i < count; ++i) SetElement(problem, tensor, i, value);
}

void FillVector(const Problem& problem, std::vector<char>& tensor, uint32_t num_heads, uint32_t dim,
                int64_t token, uint32_t head, float value) {
  const size_t first = (static_cast<size_t>(token) * num_heads + head) * dim;
  for (size_t d = 0; d < dim; ++d) SetElement(problem, tensor, first + d, value);
}

}  // namespace attn::test
