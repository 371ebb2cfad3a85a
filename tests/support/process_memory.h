// How far this process grew while something ran: the highest resident memory since a mark, and what
// is left of it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "attn/base/check.h"

namespace attn::test {

// Sanitizers keep freed memory and shadow the rest, so that resident memory says little under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMemoryIsMeasurable = false;
#else
inline constexpr bool kMemoryIsMeasurable = true;
#endif

class MemoryMark {
 public:
  // The kernel forgets the peak so far.
  MemoryMark() {
    std::ofstream clear("/proc/self/clear_refs");
    clear << "5" << std::flush;
    ATTN_CHECK(clear.good(), "the peak of resident memory cannot be reset");
    before_ = StatusBytes("VmRSS:");
  }
  int64_t growth() const { return kMemoryIsMeasurable ? StatusBytes("VmHWM:") - before_ : 0; }
  // What it holds more now than before.
  int64_t growth_now() const { return kMemoryIsMeasurable ? StatusBytes("VmRSS:") - before_ : 0; }
  int64_t before() const { return before_; }

 private:
  static int64_t StatusBytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    std::string word;
    int64_t kib = 0;
    while (status >> word && word != name) {
    }
    status >> kib;
    ATTN_CHECK(status.good(), "/proc/self/status has no ", name);
    return kib * 1024;
  }

  int64_t before_ = 0;
};

}  // namespace attn::test
