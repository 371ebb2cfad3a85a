// Reads JSON text into values: just enough for the headers of the golden files.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attn::test {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue>;

  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  bool is_array() const { return std::holds_alternative<Array>(value); }
  // These require the value to be of that kind, and throw std::bad_variant_access otherwise.
  bool boolean() const { return std::get<bool>(value); }
  double number() const { return std::get<double>(value); }
  const std::string& text() const { return std::get<std::string>(value); }
  const Array& array() const { return std::get<Array>(value); }
  const Object& object() const { return std::get<Object>(value); }
  // Null if the key is absent.
  const JsonValue& operator[](const std::string& key) const;
};

absl::StatusOr<JsonValue> ParseJson(absl::string_view text);

}  // namespace attn::test
