// The last appends of one (sequence, layer), so that a repeat can be told from a new append.
#pragma once

#include <cstdint>
#include <memory>

namespace attn::kvcache {

struct RememberedAppend {
  uint64_t token = 0;
  uint32_t begin = 0;  // the layer's length before it
  uint32_t count = 0;
  uint64_t end() const { return uint64_t{begin} + count; }
};

// A ring, oldest first. Appends follow each other, so they are sorted by begin and by end. Grows
// with what it holds: most sequences are short.
class RememberedAppends {
 public:
  // REQUIRES: append.begin is not below the newest one's end. Forgets the oldest above `limit`.
  void Add(const RememberedAppend& append, uint32_t limit);
  // Null if no append with this token began there.
  const RememberedAppend* Find(uint32_t begin, uint64_t token) const;
  // Forgets every append that ends above len.
  void CutTo(uint32_t len);
  void Clear() { size_ = 0; }

  uint32_t size() const { return size_; }
  // REQUIRES: age < size(); 0 is the newest.
  const RememberedAppend& Newest(uint32_t age) const { return ring_[Place(size_ - 1 - age)]; }

 private:
  // Where the append stands that has `index` older ones.
  uint32_t Place(uint32_t index) const {
    const uint32_t place = first_ + index;
    return place < capacity_ ? place : place - capacity_;
  }
  void Grow(uint32_t limit);

  std::unique_ptr<RememberedAppend[]> ring_;
  uint32_t capacity_ = 0;
  uint32_t first_ = 0;
  uint32_t size_ = 0;
};

}  // namespace attn::kvcache
