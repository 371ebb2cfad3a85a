// The real attn-server as a child process on a free port.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/check.h"

namespace attn::test {

class ServerProcess {
 public:
  // `arguments` beside --listen.
  explicit ServerProcess(const std::vector<std::string>& arguments = {}) {
    int out[2];
    ATTN_CHECK(pipe2(out, O_CLOEXEC) == 0, "no pipe");
    std::vector<std::string> words = {"attn-server", "--listen=127.0.0.1:0"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      execv(ATTN_BINARY_DIR "/bin/attn-server", argv.data());
      _exit(127);
    }
    close(out[1]);
    out_ = fdopen(out[0], "r");
    // "listening address=127.0.0.1:PORT port=PORT"
    while (port_ == 0 && ReadLine()) {
      const size_t at = line_.find(" port=");
      if (line_.rfind("listening ", 0) == 0 && at != line_.npos) {
        port_ = std::stoi(line_.substr(at + 6));
      }
    }
  }
  ~ServerProcess() { Stop(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // 0 if it did not start.
  int port() const { return port_; }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  // What it has printed to its standard output, as far as it was read: up to the line that it
  // listens, or after Wait all of it.
  const std::string& output() const { return output_; }

  void Signal(int number) const { kill(child_, number); }

  // Until it has ended. The exit status, or minus the number of the signal that ended it.
  int Wait() {
    if (child_ <= 0) return status_;
    while (ReadLine()) {
    }
    int status = 0;
    waitpid(child_, &status, 0);
    fclose(out_);
    child_ = 0;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return status_;
  }

  // Asks it to stop and waits. `last_line` is what it said at the end.
  int Stop(std::string* last_line = nullptr) {
    if (child_ > 0) Signal(SIGTERM);
    const int status = Wait();
    if (last_line != nullptr) *last_line = line_;
    return status;
  }

 private:
  bool ReadLine() {
    char line[8192];
    if (fgets(line, sizeof(line), out_) == nullptr) return false;
    line_ = line;
    output_ += line_;
    return true;
  }

  pid_t child_ = 0;
  int status_ = 0;
  FILE* out_ = nullptr;
  int port_ = 0;
  std::string line_;
  std::string output_;
};

}  // namespace attn::test
