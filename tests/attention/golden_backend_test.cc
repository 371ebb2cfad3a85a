// The golden cases on a backend, in every dtype it has and with every page size and row class that
// applies. Vectors that are shorter than a backend's only length are filled up with zeros, which
// change neither logits nor outputs.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/expect_reference.h"
#include "tests/support/golden_file.h"
#include "tests/support/golden_problem.h"
#include "tests/support/paged_run.h"
#include "tests/support/tested_backend.h"
#include "tests/support/tolerance.h"

namespace attn::test {
namespace {

// Cases whose dims a backend with one length of 128 cannot hold: D 192 and 256.
constexpr int kNumTooLong = 2;
constexpr int kNumComputed = 54;

// Vectors of `dim` elements of `size` bytes become vectors of `wanted`.
std::vector<char> Padded(const std::vector<char>& vectors, size_t dim, size_t wanted, size_t size) {
  std::vector<char> padded(vectors.size() / dim * wanted, 0);
  for (size_t i = 0; i < vectors.size() / (dim * size); ++i) {
    std::copy_n(vectors.begin() + static_cast<std::ptrdiff_t>(i * dim * size), dim * size,
                padded.begin() + static_cast<std::ptrdiff_t>(i * wanted * size));
  }
  return padded;
}

// The same problem with the dims that the tested backend asks for.
void PadDims(GoldenProblem& golden) {
  AttentionSpec& spec = golden.problem.spec;
  AttentionSpec wanted = spec;
  Narrow(wanted);
  const size_t size = SizeOf(spec.activation_dtype);
  for (ItemTensors& tensors : golden.problem.tensors) {
    tensors.q = Padded(tensors.q, spec.head_dim_qk, wanted.head_dim_qk, size);
    tensors.k = Padded(tensors.k, spec.head_dim_qk, wanted.head_dim_qk, size);
    tensors.v = Padded(tensors.v, spec.head_dim_v, wanted.head_dim_v, size);
  }
  for (Expected& expected : golden.expected) {
    const std::vector<double>& out = expected.result.out;
    std::vector<double> padded(out.size() / spec.head_dim_v * wanted.head_dim_v, 0.0);
    for (size_t i = 0; i < out.size(); ++i) {
      padded[i / spec.head_dim_v * wanted.head_dim_v + i % spec.head_dim_v] = out[i];
    }
    expected.result.out = std::move(padded);
  }
  spec.head_dim_qk = wanted.head_dim_qk;
  spec.head_dim_v = wanted.head_dim_v;
}

bool IsTooLong(const AttentionSpec& spec) {
  AttentionSpec wanted = spec;
  Narrow(wanted);
  return spec.head_dim_qk > wanted.head_dim_qk || spec.head_dim_v > wanted.head_dim_v;
}

// The layouts that a golden problem is run with: every page size and row class that applies.
std::vector<std::pair<uint32_t, Layout>> RunsOf(const GoldenProblem& golden) {
  std::vector<std::pair<uint32_t, Layout>> runs;
  const std::vector<uint32_t> page_sizes =
      golden.has_page_size ? std::vector<uint32_t>{golden.problem.spec.page_size}
                           : std::vector<uint32_t>{1, 8, 16, 48, 512};
  bool fits_decode = true;
  for (const CaseItem& item : golden.problem.items) {
    fits_decode &= ClassOf(static_cast<uint32_t>(item.q_len)) == RowClass::kDecode;
  }
  for (const uint32_t page_size : page_sizes) {
    runs.push_back({page_size, {.page_seed = page_size, .row_class = RowClass::kPrefill}});
    if (fits_decode) {
      runs.push_back({page_size, {.page_seed = page_size, .row_class = RowClass::kDecode}});
    }
    runs.push_back({page_size, {.append_piece = 5, .appends_in_same_launch = false}});
  }
  return runs;
}

void ExpectGolden(const GoldenFile& file, GoldenProblem golden) {
  for (const auto& [page_size, layout] : RunsOf(golden)) {
    golden.problem.spec.page_size = page_size;
    const auto outputs = RunOnBackend(*TestedBackends()[1], golden.problem, layout);
    ASSERT_TRUE(outputs.ok()) << file.stem << " " << outputs.status();
    for (size_t i = 0; i < golden.problem.items.size(); ++i) {
      EXPECT_TRUE(IsWithinTolerance(golden.problem, i, golden.expected[i], (*outputs)[i]))
          << file.stem << " page size " << page_size;
    }
  }
}

TEST(GoldenBackendTest, GivesTheGoldenAnswersInEveryDType) {
  const std::vector<GoldenFile> files = ReadGoldenFolder(GoldenFolder()).value();
  for (const DType dtype : TestedDTypes()) {
    int num_computed = 0;
    int num_too_long = 0;
    for (const GoldenFile& file : files) {
      if (!MissingField(file).empty()) continue;
      GoldenProblem golden = MakeGoldenProblem(file, dtype);
      if (IsTooLong(golden.problem.spec)) {
        ++num_too_long;
        EXPECT_FALSE(TestedBackends()[1]->Supports(golden.problem.spec).ok()) << file.stem;
        continue;
      }
      ++num_computed;
      PadDims(golden);
      ExpectGolden(file, std::move(golden));
    }
    EXPECT_TRUE(num_too_long == 0 || num_too_long == kNumTooLong) << num_too_long;
    EXPECT_EQ(num_computed + num_too_long, kNumComputed);
  }
}

}  // namespace
}  // namespace attn::test
