// Numbers taken from the input of a fuzzer, small ones from a single byte, so that a changed byte
// is a changed choice. After the end every choice is the lowest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace attn::fuzz {

class ByteSource {
 public:
  explicit ByteSource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool AtEnd() const { return next_ == bytes_.size(); }

  // In [low, high].
  int64_t Integer(int64_t low, int64_t high) {
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    uint64_t value = 0;
    for (uint64_t left = range; left > 0; left >>= 8) value = value << 8 | Byte();
    if (range < UINT64_MAX) value %= range + 1;
    return static_cast<int64_t>(static_cast<uint64_t>(low) + value);
  }

  // Up to `count` bytes.
  std::span<const uint8_t> Take(size_t count) {
    const size_t left = bytes_.size() - next_;
    const std::span<const uint8_t> taken = bytes_.subspan(next_, count < left ? count : left);
    next_ += taken.size();
    return taken;
  }

 private:
  uint8_t Byte() { return AtEnd() ? uint8_t{0} : bytes_[next_++]; }

  std::span<const uint8_t> bytes_;
  size_t next_ = 0;
};

}  // namespace attn::fuzz
