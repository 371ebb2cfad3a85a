// A small seeded random source whose numbers are the same everywhere, unlike those of <random>'s
// distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace attn::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [low, high].
  int64_t Integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double probability) { return Uniform() < probability; }

  // Nearly normal: mean 0, variance 1, never beyond 3.5.
  double Normal() {
    const uint64_t bits = Next();
    const double sum = static_cast<double>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                           ((bits >> 32) & 0xffff) + (bits >> 48));
    return (sum / 65535.0 - 2.0) * std::sqrt(3.0);
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
  uint64_t state_;
};

}  // namespace attn::test
