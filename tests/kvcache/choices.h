// What a random walk decides by: a seeded generator, or the input of a fuzzer, whose end is the end
// of the walk.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/byte_source.h"
#include "tests/support/random.h"

namespace attn::kvcache::test {

class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {}
  // `bytes` outlive the choices.
  explicit Choices(std::span<const uint8_t> bytes) : random_(0), bytes_(bytes) {}

  // Never, for a seed.
  bool AtEnd() const { return bytes_.has_value() && bytes_->AtEnd(); }

  uint64_t Next() {
    return bytes_.has_value() ? static_cast<uint64_t>(bytes_->Integer(INT64_MIN, INT64_MAX))
                              : random_.Next();
  }
  // In [low, high].
  int64_t Integer(int64_t low, int64_t high) {
    return bytes_.has_value() ? bytes_->Integer(low, high) : random_.Integer(low, high);
  }
  bool Chance(double probability) {
    if (!bytes_.has_value()) return random_.Chance(probability);
    return static_cast<double>(bytes_->Integer(0, 255)) < probability * 256;
  }
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[Integer(0, static_cast<int64_t>(choices.size()) - 1)];
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1],
                values[static_cast<size_t>(Integer(0, static_cast<int64_t>(i) - 1))]);
    }
  }

 private:
  attn::test::Random random_;
  std::optional<fuzz::ByteSource> bytes_;
};

}  // namespace attn::kvcache::test
