// Which of the ready work is due in the next step. Pure policy: ready work, costs and the time go
// in, chunks come out; no cache, no device, no waiting.
//
// A step is either decode or bulk (prefill, long appends), in turn while there is both, so that
// decode is answered before the next chunk starts and waits behind one chunk at most. Bulk is cut
// so that a step and the decode before it together stay near chunk_time. Decode that alone would
// take longer is spread over steps. However much decode there is, every second step has one unit of
// bulk at least, so neither starves the other.
//
// Who comes first is decided by score: the priority class, one ageing step apart, plus the time
// waited. So a class is ahead by a fixed waiting time and nobody starves. Among bulk work the time
// that the item still needs is taken off: short prompts pass long ones until these have waited for
// about their own length.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/core/attend_work.h"
#include "server/core/cost_model.h"

namespace attn::server {

struct BatcherOptions {
  Nanos chunk_time = 5 * kMillisecond;
  uint32_t max_launch_items = 4096;
};

// Engine thread only. Work belongs to the caller and stays where it is while it is queued.
class Batcher {
 public:
  // By so much longer waiting makes up for one priority class.
  static constexpr Nanos kAgeingStep = 100 * kMillisecond;

  Batcher(const BatcherOptions& options, const CostModel* costs)
      : options_(options), costs_(costs) {}

  // Fills lane, ready_since and the costs. REQUIRES: store, layer, kv_end, q_start are known.
  void Add(AttendWork& work, Nanos now);
  // No-op for work that is not queued.
  void Remove(AttendWork& work);
  // What the next step is to do. Work of which a part remains stays queued. The list is valid
  // until the next call.
  const std::vector<DueChunk>& TakeDue(Nanos now);

  bool empty() const { return num_decode_ == 0 && num_bulk_ == 0; }
  bool has_bulk() const { return num_bulk_ != 0; }
  size_t size() const { return num_decode_ + num_bulk_; }
  // When the oldest queued decode work became ready; `now` if there is none.
  Nanos OldestReady(Nanos now) const;

 private:
  // In the order in which they became ready.
  struct Queue {
    AttendWork* first = nullptr;
    AttendWork* last = nullptr;
  };
  static constexpr size_t kNumClasses = 3;

  Queue& QueueOf(const AttendWork& work);
  Nanos TakeDecode(Nanos now);
  void TakeBulk(Nanos now, Nanos time);
  AttendWork* NextDecode(Nanos now) const;
  AttendWork* NextBulk(Nanos now) const;
  bool TakeChunk(AttendWork& work, Nanos time, bool at_least_one);
  std::optional<DueChunk> NextPart(AttendWork& work, Nanos time, bool at_least_one) const;
  Nanos TimeOf(const DueChunk& chunk) const;

  const BatcherOptions options_;
  const CostModel* costs_;
  std::array<Queue, kNumClasses> decode_;
  Queue bulk_;
  size_t num_decode_ = 0;
  size_t num_bulk_ = 0;
  bool bulk_is_next_ = false;  // the last step was decode
  Nanos decode_time_ = 0;      // what it takes
  std::vector<DueChunk> due_;
};

}  // namespace attn::server
