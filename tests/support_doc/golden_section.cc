// The golden cases, and which backend computes each.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "tests/support/golden_file.h"
#include "tests/support/golden_problem.h"
#include "tests/support_doc/backend_rules.h"
#include "tests/support_doc/markdown.h"
#include "tests/support_doc/sections.h"

namespace attn::test {
namespace {

constexpr uint32_t kPaddedDim = 128;

std::string CudaVerdict(AttentionSpec spec) {
  const absl::Status as_it_is = kCudaRule.supports(spec);
  if (as_it_is.ok() || spec.head_dim_qk > kPaddedDim || spec.head_dim_v > kPaddedDim) {
    return Verdict(as_it_is);
  }
  spec.head_dim_qk = spec.head_dim_v = kPaddedDim;
  const absl::Status padded = kCudaRule.supports(spec);
  return padded.ok() ? absl::StrCat("computed, filled up to ", kPaddedDim) : Verdict(padded);
}

struct Verdicts {
  std::string cpu;
  std::string cuda;
};

Verdicts VerdictsOf(const GoldenFile& file) {
  const std::string missing = MissingField(file);
  if (!missing.empty()) {
    const std::string refused = absl::StrCat("refused: `", missing, "`");
    return {refused, refused};
  }
  return {Verdict(kCpuRule.supports(MakeGoldenProblem(file, DType::kFloat32).problem.spec)),
          CudaVerdict(MakeGoldenProblem(file, DType::kBFloat16).problem.spec)};
}

}  // namespace

std::string GoldenSection() {
  std::string rows;
  std::map<std::string, int> computed;
  const std::vector<GoldenFile> files = ReadGoldenFolder(GoldenFolder()).value();
  for (const GoldenFile& file : files) {
    const Verdicts verdicts = VerdictsOf(file);
    computed["CPU"] += verdicts.cpu.starts_with("computed");
    computed["CUDA"] += verdicts.cuda.starts_with("computed");
    rows += TableRow({absl::StrCat("`", file.stem, "`"), verdicts.cpu, verdicts.cuda});
  }
  return absl::StrCat(
      "## Golden cases\n\nOf the ", files.size(),
      " cases in `tests/golden` the CPU backend computes ", computed["CPU"],
      " (in float32, float16 and bfloat16), the CUDA backend ", computed["CUDA"],
      " (in bfloat16; vectors shorter than ", kPaddedDim,
      " are filled up with zeros by the test, which changes no result). The others are refused, "
      "most of them for a field of `Compute`, named here as in the file.\n\n",
      TableHead({"case", "CPU", "CUDA"}), rows);
}

}  // namespace attn::test
