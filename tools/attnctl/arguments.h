// The command line of attnctl.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attn::ctl {

struct Arguments {
  std::string verb;
  std::string name;  // the word behind the verb: of a model, of a health service
  std::string address = "127.0.0.1:50051";
  std::chrono::milliseconds timeout{2000};  // of each call
  bool json = false;
  bool all = false;  // zeros too
  std::string model;
  std::string owner;
  uint32_t limit = 1000;
  std::chrono::milliseconds interval{1000};
  uint64_t count = 0;  // how often; 0: until interrupted
  bool help = false;
};

// `words` without the program's name. INVALID naming the word or flag at fault.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words);

// Of one verb; of all if there is no such verb.
std::string HelpOf(const std::string& verb);

}  // namespace attn::ctl
