// A progress bar on standard error, if that is a terminal; nothing otherwise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "tools/loadgen/engine_walker.h"

namespace attn::loadgen {

// "[=====>    ] 50/100 requests, 32 active".
std::string ProgressLine(uint64_t done, uint64_t total, uint32_t active);

// Draws from its construction to its destruction.
class Progress {
 public:
  Progress(uint64_t total, const RunShared* shared);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void Draw();

  const uint64_t total_;
  const RunShared* const shared_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace attn::loadgen
