// The cache names its own parameters in errors; clients want the fields of their request.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "attn/base/error.h"

namespace attn::server {

// The same error about another field.
inline absl::Status WithField(const absl::Status& status, absl::string_view field) {
  absl::string_view message = status.message();
  if (const std::string old = FieldOf(status); !old.empty()) {
    absl::ConsumePrefix(&message, absl::StrCat(old, ": "));
  }
  return MakeError(ReasonOf(status), field, message, RetryAfterMsOf(status));
}

}  // namespace attn::server
