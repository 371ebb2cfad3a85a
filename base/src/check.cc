#include "attn/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace attn {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view message) {
  const std::string text(message);
  std::fprintf(stderr, "%s:%d: check failed: %s %s\n", file, line, condition, text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace attn
