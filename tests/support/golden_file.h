// A golden case: named tensors and the attributes that say what they mean. Format: safetensors
// with metadata {"format": "golden-attn-1", "attrs": JSON text}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/json_value.h"

namespace attn::test {

struct GoldenTensor {
  std::string dtype;  // "F32", "BF16", "I32" or "U8"
  std::vector<int64_t> shape;
  std::string bytes;

  int64_t size() const;
  // Element `index`, whatever the type; exact.
  double at(int64_t index) const;
};

struct GoldenFile {
  std::string stem;  // "012_causal_sq_gt_sk_dead"
  JsonValue attrs;
  std::map<std::string, GoldenTensor> tensors;

  bool has(const std::string& name) const { return tensors.count(name) != 0; }
  const GoldenTensor& operator[](const std::string& name) const { return tensors.at(name); }
  int64_t dim(const std::string& name) const;
};

absl::StatusOr<GoldenFile> ReadGoldenFile(const std::string& path);

// Where the golden files are: in the folder that the environment variable ATTN_GOLDEN names, on
// machines without the sources, else in the source tree.
std::string GoldenFolder();
// All files of a folder, in the order of their names.
absl::StatusOr<std::vector<GoldenFile>> ReadGoldenFolder(const std::string& folder);

}  // namespace attn::test
