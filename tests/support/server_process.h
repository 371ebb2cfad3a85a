// The real attn-server as a child process on a free port.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "attn/base/check.h"

namespace attn::loadgen {

class ServerProcess {
 public:
  ServerProcess() {
    int out[2];
    ATTN_CHECK(pipe(out) == 0, "no pipe");
    child_ = fork();
    if (child_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      execl(ATTN_BINARY_DIR "/bin/attn-server", "attn-server", "--listen=127.0.0.1:0", nullptr);
      _exit(127);
    }
    close(out[1]);
    out_ = fdopen(out[0], "r");
    // "listening address=127.0.0.1:PORT port=PORT"
    char line[4096];
    while (port_ == 0 && fgets(line, sizeof(line), out_) != nullptr) {
      const std::string text = line;
      const size_t at = text.find(" port=");
      if (text.rfind("listening ", 0) == 0 && at != text.npos) {
        port_ = std::stoi(text.substr(at + 6));
      }
    }
  }
  ~ServerProcess() { Stop(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // 0 if it did not start.
  int port() const { return port_; }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

  // Asks it to stop and waits. The exit status, or -1 after a signal; `last_line` is what it said
  // at the end.
  int Stop(std::string* last_line = nullptr) {
    if (child_ <= 0) return -1;
    kill(child_, SIGTERM);
    char line[4096];
    while (fgets(line, sizeof(line), out_) != nullptr) {
      if (last_line != nullptr) *last_line = line;
    }
    int status = 0;
    waitpid(child_, &status, 0);
    fclose(out_);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t child_ = 0;
  FILE* out_ = nullptr;
  int port_ = 0;
};

}  // namespace attn::loadgen
