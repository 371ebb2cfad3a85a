// Early return on error.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ATTN_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                  \
    if (absl::Status attn_status = (expression); !attn_status.ok()) return attn_status; \
  } while (false)

#define ATTN_STATUS_CONCAT_INNER(a, b) a##b
#define ATTN_STATUS_CONCAT(a, b) ATTN_STATUS_CONCAT_INNER(a, b)

// ATTN_ASSIGN_OR_RETURN(const int x, F());
#define ATTN_ASSIGN_OR_RETURN(declaration, expression) \
  ATTN_ASSIGN_OR_RETURN_INNER(ATTN_STATUS_CONCAT(attn_statusor_, __LINE__), declaration, expression)

#define ATTN_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return std::move(result).status();               \
  declaration = std::move(result).value()
