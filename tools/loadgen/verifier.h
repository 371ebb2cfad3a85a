// Keeps sampled rows of answers and, after the run, recomputes them from keys, values and queries
// made again by the TensorSource: what the server should hold, never what it says it holds.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tools/loadgen/model_plan.h"
#include "tools/loadgen/row_reference.h"
#include "tools/loadgen/tensor_source.h"

namespace attn::loadgen {

struct SampledRow {
  RowId row;
  std::string out;         // [num_q_heads, head_dim] in the model's dtype
  std::vector<float> lse;  // [num_q_heads]
};

struct VerifyReport {
  uint64_t rows = 0;
  uint64_t mismatches = 0;
  double worst = 0;            // largest error over its tolerance
  std::string first_mismatch;  // empty if none
};

class Verifier {
 public:
  // Both outlive the verifier.
  Verifier(const ModelPlan* model, const TensorSource* source) : model_(model), source_(source) {}

  // Any thread. Costs the row's bytes until Check.
  void Keep(SampledRow row);
  // On `num_threads` threads. REQUIRES: no Keep runs.
  VerifyReport Check(int num_threads);

 private:
  VerifyReport CheckRange(size_t begin, size_t end) const;

  const ModelPlan* const model_;
  const TensorSource* const source_;
  std::mutex mutex_;
  std::vector<SampledRow> rows_;  // guarded by mutex_ until Check
};

}  // namespace attn::loadgen
