// ATTN_CHECK ends the process with a message. Only for broken invariants of our own; what a caller
// can cause is a Status.
//
//   ATTN_CHECK(begin <= end, "begin ", begin, " end ", end);
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attn {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view message);

}  // namespace attn

#define ATTN_CHECK(condition, ...)                                                      \
  do {                                                                                  \
    if (__builtin_expect(!(condition), 0)) {                                            \
      ::attn::CheckFailed(__FILE__, __LINE__, #condition, ::absl::StrCat(__VA_ARGS__)); \
    }                                                                                   \
  } while (false)

#ifdef NDEBUG
#define ATTN_DCHECK(condition, ...)       \
  do {                                    \
    if (false) {                          \
      ATTN_CHECK(condition, __VA_ARGS__); \
    }                                     \
  } while (false)
#else
#define ATTN_DCHECK(condition, ...) ATTN_CHECK(condition, __VA_ARGS__)
#endif
