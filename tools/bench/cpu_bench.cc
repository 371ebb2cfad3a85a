// Speed of the CPU backend beside what the processor can do: prefill against a matrix product,
// decode against reading memory, append, and planning. Rivals and ours take turns, the best of each
// counts; each configuration is checked against float64 before it is timed.
//
//   cpu_bench [--only=prefill|decode|append|plan|<part of a case>] [--quick]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attention/plan/plan.h"
#include "attn/attention/cpu_backend.h"
#include "tools/bench/cpu_limits.h"
#include "tools/bench/cpu_problem.h"
#include "tools/bench/measurement.h"

namespace attn::bench {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr uint32_t kPageSize = 64;
constexpr int64_t kLeastFootprint = int64_t{5} << 28;  // 1.25 GiB: four times a cache of 300 MB
// Decision 13: a matrix product can be expected to reach this share of the multiply-add peak.
constexpr double kGemmOfPeak = 0.80;

struct Options {
  std::string only;
  bool quick = false;

  bool Wants(const std::string& name) const { return absl::StrContains(name, only); }
};

double Tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 2e-6 : (dtype == DType::kFloat16 ? 1e-3 : 8e-3);
}

void CheckOrDie(CpuProblem& problem, DType dtype, const std::string& name) {
  const double error = problem.Error();
  if (error <= Tolerance(dtype)) return;
  std::fprintf(stderr, "%s: error %g, allowed %g\n", name.c_str(), error, Tolerance(dtype));
  std::exit(1);
}

AttentionSpec SpecOf(DType dtype, uint32_t num_kv_heads, uint32_t head_dim) {
  AttentionSpec spec;
  spec.num_q_heads = 4 * num_kv_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_dim_qk = spec.head_dim_v = head_dim;
  spec.activation_dtype = spec.kv_dtype = dtype;
  spec.page_size = kPageSize;
  spec.score.softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return spec;
}

double TimeOf(CpuProblem& problem) {
  const double start = Seconds();
  problem.Attend();
  return Seconds() - start;
}

// Best rates seen, of ours and of the limits, over rounds in turns.
struct GemmLimit {
  Sgemm sgemm;
  double peak = 0;
  double gemm = 0;

  void Sample() {
    peak = std::max(peak, FmaGigaflops());
    if (sgemm.is_available()) gemm = std::max(gemm, sgemm.Gigaflops());
  }
  double value() const { return std::max(gemm, kGemmOfPeak * peak); }
};

void MeasurePrefill(const Options& options, GemmLimit& limit, DType dtype, uint32_t head_dim,
                    int32_t length, bool causal, int num_threads) {
  const std::string name =
      absl::StrCat("prefill ", NameOf(dtype), " D ", head_dim, " S ", length, " GQA 32/8 ",
                   causal ? "causal" : "none", ", ", num_threads, " thread(s)");
  if (!options.Wants(name)) return;
  // Heads are alike: few of them, where one launch of all 8 KV heads takes seconds.
  const uint32_t heads = length <= 512 ? 8 : static_cast<uint32_t>(num_threads);
  const AttentionSpec spec = SpecOf(dtype, heads, head_dim);
  std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = num_threads}).value();
  CpuProblem problem(*backend, spec, length / static_cast<int32_t>(kPageSize));
  problem.SetRows(1, length, length, causal);
  problem.Attend();
  CheckOrDie(problem, dtype, name);
  double best = 0;
  const int rounds = options.quick ? 3 : (length <= 512 ? 20 : (length <= 2048 ? 10 : 5));
  for (int round = 0; round < rounds; ++round) {
    limit.Sample();
    best = std::max(best, problem.flops() / TimeOf(problem) * 1e-9);
  }
  const double rival = limit.value() * num_threads;
  Report({"cpu_prefill", name, "rate", best, "GFLOP/s", "gemm", rival, best / rival});
}

void RunPrefill(const Options& options) {
  GemmLimit limit;
  if (!limit.sgemm.is_available()) {
    std::fprintf(stderr, "gemm is 0.80 x multiply-add peak alone: no libopenblas.so.0 here\n");
  }
  for (int i = 0; i < 10; ++i) limit.Sample();
  for (const int num_threads : {1, 2}) {
    for (const DType dtype : kDTypes) {
      for (const uint32_t head_dim : {64u, 128u}) {
        for (const int32_t length : {512, 2048, 4096}) {
          for (const bool causal : {false, true}) {
            MeasurePrefill(options, limit, dtype, head_dim, length, causal, num_threads);
          }
        }
      }
    }
  }
  if (!options.Wants("prefill")) return;
  Report({"cpu_prefill", "multiply-adds in registers, 1 thread", "rate", limit.peak, "GFLOP/s", "",
          0, 0});
  if (limit.sgemm.is_available()) {
    Report({"cpu_prefill", "sgemm 768, 1 thread", "rate", limit.gemm, "GFLOP/s", "fma peak",
            limit.peak, limit.gemm / limit.peak});
  }
}

struct DecodeCase {
  std::string name;
  DType dtype;
  int32_t length;
  int32_t num_sequences;
  int num_threads;
};

std::vector<DecodeCase> DecodeCases(const Options& options, DType dtype, int num_threads) {
  std::vector<DecodeCase> cases;
  for (const int32_t length : {1024, 8192, 32768}) {
    for (const int32_t num_sequences : {1, 8}) {
      const std::string name =
          absl::StrCat("decode ", NameOf(dtype), " D 128 GQA 32/8 L ", length, " B ", num_sequences,
                       " page ", kPageSize, ", ", num_threads, " thread(s)");
      if (options.Wants(name)) cases.push_back({name, dtype, length, num_sequences, num_threads});
    }
  }
  return cases;
}

void MeasureDecode(const Options& options, ReadBandwidth& reader, CpuProblem& problem,
                   const DecodeCase& given) {
  problem.SetRows(given.num_sequences, 1, given.length, true);
  problem.Attend();
  CheckOrDie(problem, given.dtype, given.name);
  double best = 0;
  double read = 0;
  const int64_t bytes = static_cast<int64_t>(problem.kv_bytes());
  const double budget = options.quick ? 0.4e9 : 4e9;
  const int rounds = std::clamp(static_cast<int>(budget / static_cast<double>(bytes)), 3, 300);
  for (int round = 0; round < rounds; ++round) {
    const int streams[] = {1, 4, 8};
    read = std::max(read, reader.Read(std::max(bytes, int64_t{32} << 20), streams[round % 3],
                                      given.num_threads));
    best = std::max(best, problem.kv_bytes() / TimeOf(problem) * 1e-9);
  }
  Report({"cpu_decode", given.name, "rate", best, "GB/s", "read bandwidth", read, best / read});
}

void RunDecode(const Options& options) {
  std::unique_ptr<ReadBandwidth> reader;
  for (const DType dtype : kDTypes) {
    for (const int num_threads : {1, 2}) {
      const std::vector<DecodeCase> cases = DecodeCases(options, dtype, num_threads);
      if (cases.empty()) continue;
      if (reader == nullptr) reader = std::make_unique<ReadBandwidth>(kLeastFootprint);
      const AttentionSpec spec = SpecOf(dtype, 8, 128);
      std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = num_threads}).value();
      const int64_t page_bytes = backend->PageBytes(spec);
      CpuProblem problem(*backend, spec, static_cast<int32_t>(kLeastFootprint / page_bytes));
      for (const DecodeCase& given : cases) MeasureDecode(options, *reader, problem, given);
    }
  }
}

void MeasureAppend(const Options& options, DType dtype, int64_t count) {
  const std::string name = absl::StrCat("append ", NameOf(dtype), " D 128, 8 KV heads, ", count,
                                        " token(s) of one layer, 1 thread");
  if (!options.Wants(name)) return;
  std::unique_ptr<Backend> backend = CreateCpuBackend({.num_threads = 1}).value();
  CpuProblem problem(*backend, SpecOf(dtype, 8, 128), 1024);
  double best = INFINITY;
  for (int64_t at = 0; at + count <= problem.tokens(); at += std::max<int64_t>(count, 96)) {
    const int64_t begin = at % CpuProblem::kTapeTokens + count <= CpuProblem::kTapeTokens
                              ? at
                              : at / CpuProblem::kTapeTokens * CpuProblem::kTapeTokens;
    const double start = Seconds();
    problem.Append(begin, count);
    best = std::min(best, Seconds() - start);
  }
  Report({"cpu_append", name, "time per token", best / static_cast<double>(count) * 1e6, "us", "",
          0, 0});
}

void MeasurePlan(const Options& options, int32_t num_sequences, int num_threads) {
  const std::string name =
      absl::StrCat("plan of ", num_sequences, " decode sequences of 1k to 33k keys for ",
                   num_threads, " thread(s)");
  if (!options.Wants(name)) return;
  const AttentionSpec spec = SpecOf(DType::kBFloat16, 8, 128);
  std::vector<AttendEntry> entries(static_cast<size_t>(num_sequences));
  for (size_t i = 0; i < entries.size(); ++i) {
    const int32_t length = 1024 + static_cast<int32_t>(i * 7919 % 32768);
    entries[i] = {
        .pages = {}, .q_start = length - 1, .q_len = 1, .kv_end = length, .kv_head_end = 8};
  }
  plan::Plan plan;
  double best = INFINITY;
  for (int round = 0; round < (options.quick ? 100 : 2000); ++round) {
    const double start = Seconds();
    plan.Build(spec, entries, {.num_threads = num_threads, .max_prefill_rows = 192});
    best = std::min(best, Seconds() - start);
  }
  Report({"plan", name, "time per sequence", best / num_sequences * 1e9, "ns", "bar", 40,
          best / num_sequences * 1e9 / 40});
}

int Main(int argc, char** argv) {
  StartMeasurements(argc, argv);
  Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--only=")) {
      options.only = std::string(argument);
    } else if (argument == "--quick") {
      options.quick = true;
    } else if (!absl::StartsWith(argument, "--commit=")) {
      std::fprintf(stderr, "unknown argument %s; want --only=TEXT, --quick or --commit=ID\n",
                   argv[i]);
      return 2;
    }
  }
  for (const int32_t num_sequences : {64, 256}) {
    for (const int num_threads : {1, 2, 16}) MeasurePlan(options, num_sequences, num_threads);
  }
  for (const DType dtype : kDTypes) {
    for (const int64_t count : {1, 512}) MeasureAppend(options, dtype, count);
  }
  RunPrefill(options);
  RunDecode(options);
  return 0;
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) { return attn::bench::Main(argc, argv); }
