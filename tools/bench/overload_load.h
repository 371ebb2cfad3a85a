// Chunks of prompts at a rate that no answer slows down, and beside them a little decode at a rate
// of its own, over sequences that stay as long as they are (every request rewinds its sequence).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "attn/base/clock.h"
#include "attn/client/client.h"

namespace attn::bench {

enum class Kind : uint8_t { kDecode = 0, kPrompt = 1 };
inline constexpr size_t kNumKinds = 2;

// What became of the requests of one phase. Times from the intended send time.
struct Answers {
  struct OfKind {
    std::vector<double> good_ms;
    std::vector<double> refused_ms;
    uint64_t late = 0;  // accepted, and over their time limit then
    uint64_t sent = 0;
  };
  std::array<OfKind, kNumKinds> kinds;
  uint64_t sent_late = 0;  // more than a millisecond behind the intended time
  uint64_t no_sequence = 0;
  uint64_t failed = 0;  // anything else
  std::string first_failure;
  double seconds = 0;

  const OfKind& of(Kind kind) const { return kinds[static_cast<size_t>(kind)]; }
  double prompts_per_second() const {
    return static_cast<double>(of(Kind::kPrompt).good_ms.size()) / seconds;
  }
};

struct PhaseOptions {
  double seconds = 10;
  double rate = 0;          // requests per second, Poisson; 0: closed loop
  int callers = 32;         // of the closed loop, prompt chunks only
  uint32_t timeout_ms = 0;  // time limit of each request; 0: none
};

class OverloadLoad {
 public:
  // Declares a model and writes the sequences.
  explicit OverloadLoad(const std::string& target);
  ~OverloadLoad();

  Answers Run(const PhaseOptions& options);

 private:
  struct Sequence {
    SequenceId id = {};
    uint32_t len = 0;
    client::Stream* stream = nullptr;
  };
  struct Sent {
    size_t sequence = 0;
    Kind kind = Kind::kDecode;
    uint32_t rows = 0;
    Nanos intended = 0;
  };

  void WriteSequences();
  void Send(Kind kind, Nanos intended);
  void Note(const Sent& sent, const absl::StatusOr<client::AttendResult>& result);
  void RunClosed();
  // Until `end`, Poisson.
  void SendAtRate(Kind kind, double rate, Nanos end);

  std::vector<std::unique_ptr<client::Client>> clients_;
  std::vector<std::unique_ptr<client::Stream>> streams_;
  std::vector<Sequence> sequences_;
  std::vector<std::byte> zeros_;

  std::mutex mutex_;
  std::mt19937_64 random_{20};
  std::condition_variable answered_;
  std::vector<size_t> free_;  // sequences without a request in flight
  size_t in_flight_ = 0;
  bool closed_loop_ = false;  // an answer sends the next request
  PhaseOptions options_;
  Answers answers_;
};

}  // namespace attn::bench
