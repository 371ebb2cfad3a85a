#include "server/rpc/stream_set.h"

#include <utility>

namespace attn::server {

void StreamSet::Add(std::shared_ptr<DrainableStream> stream) {
  const std::lock_guard lock(mutex_);
  DrainableStream* key = stream.get();
  streams_.emplace(key, std::move(stream));
}

void StreamSet::Remove(DrainableStream* stream) {
  std::shared_ptr<DrainableStream> last;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  last = std::move(it->second);
  streams_.erase(it);
  if (streams_.empty()) empty_.notify_all();
}

std::vector<std::shared_ptr<DrainableStream>> StreamSet::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<DrainableStream>> all;
  for (const auto& [key, stream] : streams_) all.push_back(stream);
  return all;
}

size_t StreamSet::size() const {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

bool StreamSet::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return empty_.wait_until(lock, deadline, [this] { return streams_.empty(); });
}

}  // namespace attn::server
