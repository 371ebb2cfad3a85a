#include "tests/support/golden_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/base/dtype.h"
#include "attn/base/status_macros.h"

namespace attn::test {
namespace {

GoldenTensor TensorFrom(const JsonValue& entry, absl::string_view data) {
  GoldenTensor tensor;
  tensor.dtype = entry["dtype"].text();
  for (const JsonValue& extent : entry["shape"].array()) {
    tensor.shape.push_back(static_cast<int64_t>(extent.number()));
  }
  const size_t begin = static_cast<size_t>(entry["data_offsets"].array()[0].number());
  const size_t end = static_cast<size_t>(entry["data_offsets"].array()[1].number());
  tensor.bytes = std::string(data.substr(begin, end - begin));
  return tensor;
}

}  // namespace

int64_t GoldenTensor::size() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

double GoldenTensor::at(int64_t index) const {
  if (dtype == "F32") return LoadAsFloat(DType::kFloat32, bytes.data(), index);
  if (dtype == "BF16") return LoadAsFloat(DType::kBFloat16, bytes.data(), index);
  if (dtype == "U8") return static_cast<unsigned char>(bytes[index]);
  int32_t value;  // I32
  std::memcpy(&value, bytes.data() + index * 4, sizeof(value));
  return value;
}

int64_t GoldenFile::dim(const std::string& name) const {
  return static_cast<int64_t>(attrs["dims"][name].number());
}

absl::StatusOr<GoldenFile> ReadGoldenFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(stream)),
                            std::istreambuf_iterator<char>());
  uint64_t header_bytes = 0;
  if (content.size() < sizeof(header_bytes)) {
    return absl::NotFoundError(absl::StrCat(path, ": got ", content.size(), " bytes"));
  }
  std::memcpy(&header_bytes, content.data(), sizeof(header_bytes));
  const absl::string_view after_length = absl::string_view(content).substr(sizeof(header_bytes));
  ATTN_ASSIGN_OR_RETURN(const JsonValue header, ParseJson(after_length.substr(0, header_bytes)));
  GoldenFile file;
  file.stem = std::filesystem::path(path).stem();
  for (const auto& [name, entry] : header.object()) {
    if (name == "__metadata__") {
      ATTN_ASSIGN_OR_RETURN(file.attrs, ParseJson(entry["attrs"].text()));
    } else {
      file.tensors[name] = TensorFrom(entry, after_length.substr(header_bytes));
    }
  }
  return file;
}

std::string GoldenFolder() {
  const char* const folder = std::getenv("ATTN_GOLDEN");
  return folder != nullptr ? folder : ATTN_SOURCE_DIR "/tests/golden";
}

absl::StatusOr<std::vector<GoldenFile>> ReadGoldenFolder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<GoldenFile> files;
  for (const std::string& path : paths) {
    ATTN_ASSIGN_OR_RETURN(GoldenFile file, ReadGoldenFile(path));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace attn::test
