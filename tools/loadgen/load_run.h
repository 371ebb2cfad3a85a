// A whole run: connect, declare, release the requests at their times, wait, verify, look for
// sequences left behind.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/loadgen/options.h"
#include "tools/loadgen/run_stats.h"
#include "tools/loadgen/verifier.h"

namespace attn::loadgen {

struct RunReport {
  std::string device;  // of the server
  RunStats stats;
  double seconds = 0;      // first arrival until the last answer
  double cpu_seconds = 0;  // of this process in that time
  uint64_t sends = 0;
  uint64_t late_sends = 0;
  double late_share = 0;
  bool on_time = true;  // few enough late sends
  double send_delay_p99_ms = 0;
  VerifyReport verify;
  double verify_seconds = 0;
  uint64_t sequences_opened = 0;
  uint64_t sequences_left = 0;  // of ours, open after the run
  bool flipped = false;         // a bit was flipped on purpose
};

enum class Verdict {
  kGood,
  kFailed,   // failed requests, mismatches, nothing verified, sequences left behind
  kInvalid,  // the load generator was too slow: the figures say nothing about the server
};

absl::StatusOr<RunReport> RunLoad(const Options& options);

// `why` gets the reason in words unless it is good.
Verdict Judge(const Options& options, const RunReport& report, std::string* why);

}  // namespace attn::loadgen
