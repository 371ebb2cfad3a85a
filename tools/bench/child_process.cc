#include "tools/bench/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace attn::bench {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int out[2];
  if (pipe(out) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  out_ = fdopen(out[0], "r");
}

int ChildProcess::WaitForPort() {
  char line[4096];
  while (out_ != nullptr && fgets(line, sizeof(line), out_) != nullptr) {
    const std::string text = line;
    const size_t at = text.find(" port=");
    if (at != text.npos) return std::atoi(text.c_str() + at + 6);
  }
  return 0;
}

double ChildProcess::CpuSeconds() const {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double ChildProcess::ResidentMegabytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  double all_pages = 0;
  double resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

std::string ChildProcess::Stop() {
  std::string rest;
  if (pid_ <= 0) return rest;
  kill(pid_, SIGTERM);
  char line[4096];
  while (out_ != nullptr && fgets(line, sizeof(line), out_) != nullptr) rest += line;
  waitpid(pid_, nullptr, 0);
  if (out_ != nullptr) fclose(out_);
  pid_ = 0;
  return rest;
}

}  // namespace attn::bench
