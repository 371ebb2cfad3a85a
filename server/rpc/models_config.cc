#include "server/rpc/models_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "attn/base/error.h"
#include "attn/v1/config.pb.h"

namespace attn::server {
namespace {

// Keeps the first error.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

absl::StatusOr<std::vector<v1::ModelSpec>> ReadModelsFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.good()) return MakeError(Reason::kInvalid, path, "cannot be read");
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  v1::ModelsConfig config;
  if (!parser.ParseFromString(text.str(), &config)) {
    return MakeError(Reason::kInvalid, path, error.text());
  }
  return std::vector<v1::ModelSpec>(config.models().begin(), config.models().end());
}

}  // namespace attn::server
