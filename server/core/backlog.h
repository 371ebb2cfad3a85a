// How long a new call would wait behind what is accepted and not answered, by the cost model's
// estimates. Knows the order of work only roughly, as batcher.h describes it: decode waits behind
// decode and one chunk of bulk; bulk waits behind decode and behind what needs less time than
// itself, since short prompts pass long ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attn/base/clock.h"

namespace attn::server {

// What a call needs of the device by itself, estimated when it was accepted.
struct CallTime {
  Nanos decode = 0;
  Nanos bulk = 0;  // prefill and long appends

  Nanos total() const { return decode + bulk; }
};

class Backlog {
 public:
  explicit Backlog(Nanos chunk_time) : chunk_time_(chunk_time) {}

  void Add(const CallTime& time);
  // The same values that were added.
  void Remove(const CallTime& time);
  // How long until work of `time` could begin to be done last, its own time not counted.
  Nanos WaitOf(const CallTime& time) const;

 private:
  // Calls whose bulk time has the same number of bits.
  struct Bucket {
    int64_t count = 0;
    Nanos time = 0;
  };
  static size_t BucketOf(Nanos time);
  Nanos BulkAheadOf(Nanos own) const;

  const Nanos chunk_time_;
  Nanos decode_ = 0;
  Nanos bulk_ = 0;
  std::array<Bucket, 65> buckets_;
};

}  // namespace attn::server
