#include "tests/support/json_value.h"

#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace attn::test {
namespace {

// Recursive descent over `rest_`. Every Read… returns false where the text is not JSON.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<JsonValue> Parse() {
    JsonValue value;
    if (!ReadValue(value) || (SkipSpace(), at_ != text_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("not JSON at byte ", at_));
    }
    return value;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool Accept(absl::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  bool ReadValue(JsonValue& value) {
    if (Accept("null")) return true;
    if (Accept("true")) return value.value = true, true;
    if (Accept("false")) return value.value = false, true;
    if (Accept("{")) return ReadObject(value.value.emplace<JsonValue::Object>());
    if (Accept("[")) return ReadArray(value.value.emplace<JsonValue::Array>());
    if (Accept("\"")) return ReadString(value.value.emplace<std::string>());
    return ReadNumber(value.value.emplace<double>());
  }

  bool ReadObject(JsonValue::Object& object) {
    if (Accept("}")) return true;
    do {
      std::string key;
      if (!Accept("\"") || !ReadString(key) || !Accept(":") || !ReadValue(object[key]))
        return false;
    } while (Accept(","));
    return Accept("}");
  }

  bool ReadArray(JsonValue::Array& array) {
    if (Accept("]")) return true;
    do {
      if (!ReadValue(array.emplace_back())) return false;
    } while (Accept(","));
    return Accept("]");
  }

  // After the opening quote. The files are ASCII and escape only quotes and backslashes.
  bool ReadString(std::string& to) {
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') ++at_;
      if (at_ == text_.size()) return false;
      to.push_back(text_[at_++]);
    }
    return at_++ < text_.size();
  }

  bool ReadNumber(double& number) {
    const size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
    const absl::string_view digits = text_.substr(at_, end == text_.npos ? end : end - at_);
    at_ += digits.size();
    return absl::SimpleAtod(digits, &number);
  }

  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const JsonValue& JsonValue::operator[](const std::string& key) const {
  static const JsonValue kNull;
  const auto found = object().find(key);
  return found == object().end() ? kNull : found->second;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view text) { return Parser(text).Parse(); }

}  // namespace attn::test
