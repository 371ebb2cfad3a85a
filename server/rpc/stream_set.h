// The open AttendStreams of a server, so that a drain can tell them and end them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace attn::server {

class DrainableStream {
 public:
  virtual ~DrainableStream() = default;
  // Tells the client that the server drains. Any thread.
  virtual void AnnounceDrain() = 0;
  // Ends the stream once everything in flight has been answered. Any thread.
  virtual void EndForDrain() = 0;
  // Cancels the stream if none of its writes has ended since the last call, or since EndForDrain.
  // REQUIRES: EndForDrain was called and nothing is in flight. Any thread.
  virtual void CancelIfUnread() = 0;
};

// Any thread. A leaf lock: no stream is called under it.
class StreamSet {
 public:
  void Add(std::shared_ptr<DrainableStream> stream);
  // Drops the set's share of `stream`.
  void Remove(DrainableStream* stream);
  std::vector<std::shared_ptr<DrainableStream>> All() const;
  size_t size() const;
  // False if streams are still open at `deadline`.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  absl::flat_hash_map<DrainableStream*, std::shared_ptr<DrainableStream>> streams_;
};

}  // namespace attn::server
