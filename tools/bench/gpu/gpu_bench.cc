// Kernel benchmarks on a GPU; prints JSON lines.
//
//   gpu_bench prefill|decode|mixed|backend [--quick] [--commit=<id>]
#include <cstdio>
#include <string>

#include "tools/bench/gpu/backend_bench.h"
#include "tools/bench/gpu/decode_bench.h"
#include "tools/bench/gpu/device_timing.h"
#include "tools/bench/gpu/mixed_bench.h"
#include "tools/bench/gpu/prefill_bench.h"

int main(int argc, char** argv) {
  attn::bench::StartReport(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "";
  bool is_quick = false;
  for (int i = 2; i < argc; ++i) is_quick |= std::string(argv[i]) == "--quick";
  if (what != "prefill" && what != "decode" && what != "mixed" && what != "backend") {
    std::fprintf(stderr,
                 "usage: gpu_bench prefill|decode|mixed|backend [--quick] [--commit=<id>]\n");
    return 2;
  }
  attn::bench::DeviceTimer timer;
  if (what == "prefill") {
    attn::bench::BenchPrefill(timer, is_quick);
  } else if (what == "mixed") {
    attn::bench::BenchMixed(timer);
  } else if (what == "backend") {
    attn::bench::BenchBackend(timer);
  } else {
    attn::bench::BenchDecode(timer, is_quick);
  }
  return 0;
}
