// Pages promised to one append.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attn/base/ids.h"
#include "attn/kvcache/page_move.h"

namespace attn::kvcache {

class KvCache;

// A reservation is a promise of pages for one append to one (sequence, layer). Until Commit() the
// layer still ends where it ended before (or, with rewind, at expected_len), so a failed step needs
// no undo code: destroying the reservation returns its pages.
// REQUIRES: the KvCache outlives it. Engine thread only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  // True when the append token was remembered: nothing is to be written, rows see keys below end().
  bool replayed() const { return replayed_; }
  // Slots [begin, end) are to be written. For a replay: where that append began and ended.
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return end_; }
  // Copies to perform first; see PageMove for the order.
  std::span<const PageMove> moves() const { return moves_; }

  // The layer now ends at end() and the token is remembered. No-op for a replay. At most once.
  void Commit();

 private:
  friend class KvCache;

  KvCache* cache_ = nullptr;  // null: nothing to roll back
  SequenceId sequence_;
  uint32_t layer_ = 0;
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
  uint64_t append_token_ = 0;
  bool replayed_ = false;
  std::vector<PageMove> moves_;
};

}  // namespace attn::kvcache
