// attn-loadgen: open-loop load on an attention server. Exit status: 0 good, 1 failed, 2 bad flags,
// 3 invalid because of delayed sends.
#include <malloc.h>

#include <cstdio>
#include <cstring>

#include "tools/loadgen/load_run.h"
#include "tools/loadgen/report.h"

namespace attn::loadgen {
namespace {

// Messages of some 100 KiB come and go; fetching their pages from the system each time would make
// sends late.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

int Main(int num_flags, const char* const* flags) {
  if (num_flags == 1 && std::strcmp(flags[0], "--help") == 0) {
    std::fputs(Usage().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<Options> options = ParseOptions(num_flags, flags);
  if (!options.ok()) {
    std::fprintf(stderr, "attn-loadgen: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  KeepFreedMemory();
  const absl::StatusOr<RunReport> report = RunLoad(*options);
  if (!report.ok()) {
    std::fprintf(stderr, "attn-loadgen: %s\n", report.status().ToString().c_str());
    return 1;
  }
  std::string why;
  const Verdict verdict = Judge(*options, *report, &why);
  std::fputs(TextReport(*options, *report).c_str(), stdout);
  if (!options->json.empty()) {
    const absl::Status written =
        WriteFile(options->json, JsonReport(*options, *report, verdict, why));
    if (!written.ok()) {
      std::fprintf(stderr, "attn-loadgen: %s\n", std::string(written.message()).c_str());
      return 1;
    }
  }
  if (verdict == Verdict::kGood) return 0;
  std::fprintf(stderr, "attn-loadgen: %s: %s\n", verdict == Verdict::kFailed ? "failed" : "invalid",
               why.c_str());
  return verdict == Verdict::kFailed ? 1 : 3;
}

}  // namespace
}  // namespace attn::loadgen

int main(int argc, char** argv) { return attn::loadgen::Main(argc - 1, argv + 1); }
