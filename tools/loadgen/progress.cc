#include "tools/loadgen/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace attn::loadgen {

std::string ProgressLine(uint64_t done, uint64_t total, uint32_t active) {
  constexpr uint64_t kWidth = 40;
  const uint64_t filled = total == 0 ? kWidth : std::min(kWidth, kWidth * done / total);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  return absl::StrCat("[", bar, "] ", done, "/", total, " requests, ", active, " active");
}

Progress::Progress(uint64_t total, const RunShared* shared) : total_(total), shared_(shared) {
  if (isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { Draw(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    stop_changed_.notify_one();
  }
  thread_.join();
}

void Progress::Draw() {
  std::unique_lock lock(mutex_);
  bool last = false;
  while (!last) {
    last = stop_changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return stop_; });
    const std::string line = ProgressLine(shared_->finished.load(), total_, shared_->active.load());
    std::fprintf(stderr, "\r%s\x1b[K%s", line.c_str(), last ? "\n" : "");
    std::fflush(stderr);
  }
}

}  // namespace attn::loadgen
