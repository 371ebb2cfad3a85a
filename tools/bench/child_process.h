// A program run beside the benchmark: started, watched for its CPU time, stopped.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace attn::bench {

class ChildProcess {
 public:
  // The first argument is the program's path.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess() { Stop(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Reads its output up to a line with " port=N"; 0 if there is none.
  int WaitForPort();
  // User and system time of all its threads so far.
  double CpuSeconds() const;
  // Memory it holds now.
  double ResidentMegabytes() const;
  // SIGTERM; what it has printed since, once it has ended.
  std::string Stop();

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
};

}  // namespace attn::bench
