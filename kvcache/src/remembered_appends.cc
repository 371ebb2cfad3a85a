#include "kvcache/src/remembered_appends.h"

#include <algorithm>
#include <utility>

namespace attn::kvcache {

void RememberedAppends::Add(const RememberedAppend& append, uint32_t limit) {
  if (limit == 0) return;
  if (size_ == limit) {
    first_ = Place(1);
    --size_;
  }
  if (size_ == capacity_) Grow(limit);
  ring_[Place(size_++)] = append;
}

const RememberedAppend* RememberedAppends::Find(uint32_t begin, uint64_t token) const {
  for (uint32_t age = 0; age < size_; ++age) {
    const RememberedAppend& append = Newest(age);
    if (append.begin < begin) return nullptr;
    if (append.begin == begin && append.token == token) return &append;
  }
  return nullptr;
}

void RememberedAppends::CutTo(uint32_t len) {
  while (size_ > 0 && Newest(0).end() > len) --size_;
}

void RememberedAppends::Grow(uint32_t limit) {
  const uint32_t capacity = std::min(limit, std::max(2u, 2 * capacity_));
  auto ring = std::make_unique<RememberedAppend[]>(capacity);
  for (uint32_t i = 0; i < size_; ++i) ring[i] = ring_[Place(i)];
  ring_ = std::move(ring);
  capacity_ = capacity;
  first_ = 0;
}

}  // namespace attn::kvcache
