// Flushes denormals to zero on this thread while alive: tiny probabilities would otherwise cost a
// microcode assist each. The conversions of float16 are exact all the same, as the processor
// ignores both modes there.
#pragma once

#include <xmmintrin.h>

namespace attn::cpu {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  const unsigned saved_;
};

}  // namespace attn::cpu
