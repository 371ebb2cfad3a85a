// Sums per lane; bulk by its size in powers of two.
#include "server/core/backlog.h"

#include <algorithm>
#include <bit>

namespace attn::server {

size_t Backlog::BucketOf(Nanos time) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(time)));
}

void Backlog::Add(const CallTime& time) {
  decode_ += time.decode;
  bulk_ += time.bulk;
  if (time.bulk == 0) return;
  Bucket& bucket = buckets_[BucketOf(time.bulk)];
  ++bucket.count;
  bucket.time += time.bulk;
}

void Backlog::Remove(const CallTime& time) {
  decode_ -= time.decode;
  bulk_ -= time.bulk;
  if (time.bulk == 0) return;
  Bucket& bucket = buckets_[BucketOf(time.bulk)];
  --bucket.count;
  bucket.time -= time.bulk;
}

// What is longer has been overtaken once it has got as much time as `own` needs.
Nanos Backlog::BulkAheadOf(Nanos own) const {
  const size_t own_bucket = BucketOf(own);
  Nanos ahead = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    ahead += i <= own_bucket ? buckets_[i].time : buckets_[i].count * own;
  }
  return ahead;
}

Nanos Backlog::WaitOf(const CallTime& time) const {
  if (time.bulk > 0) return decode_ + BulkAheadOf(time.bulk);
  return decode_ + std::min(bulk_, chunk_time_);
}

}  // namespace attn::server
