#include "tools/bench/measurement.h"

#include <sched.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace attn::bench {
namespace {

std::string command_line;
std::string commit = "unknown";

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
  }
  return quoted + "\"";
}

std::string CommitOfWorkingDirectory() {
  std::string found = "unknown";
  if (FILE* pipe = popen("git describe --always --dirty --abbrev=12 2>/dev/null", "r")) {
    char line[128];
    if (fgets(line, sizeof(line), pipe) != nullptr) {
      found = line;
      while (!found.empty() && found.back() == '\n') found.pop_back();
    }
    pclose(pipe);
  }
  return found;
}

}  // namespace

void StartMeasurements(int argc, char** argv) {
  std::string given;
  for (int i = 0; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--commit=")) {
      given = std::string(argument);
      continue;
    }
    absl::StrAppend(&command_line, i == 0 ? "" : " ", argv[i]);
  }
  commit = given.empty() ? CommitOfWorkingDirectory() : given;
}

std::string DeviceName() {
  std::string name = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (absl::StartsWith(line, "model name")) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  return absl::StrCat(name, ", ", CPU_COUNT(&cpus), " cores");
}

void Report(const Measurement& m) {
  std::string line =
      absl::StrFormat(R"({"bench": %s, "case": %s, "metric": %s, "value": %.6g, "unit": %s)",
                      Quoted(m.bench), Quoted(m.shape), Quoted(m.metric), m.value, Quoted(m.unit));
  if (!m.rival.empty()) {
    absl::StrAppendFormat(&line, R"(, "rival": %s, "rival_value": %.6g, "ratio": %.4g)",
                          Quoted(m.rival), m.rival_value, m.ratio);
  }
  absl::StrAppendFormat(&line, R"(, "device": %s, "commit": %s, "command": %s})",
                        Quoted(DeviceName()), Quoted(commit), Quoted(command_line));
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace attn::bench
