// attn-server: flags, signals, and one line of text per event of its life.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "server/log.h"
#include "server/options.h"
#include "server/rpc/server.h"

namespace {

// Giving the memory of large messages back to the system each time costs more than copying them.
// Says so to glibc's allocator; jemalloc, where the build found it, waits before it gives back.
// Only a program may decide this, never a library.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

// Blocks until SIGTERM or SIGINT; after that a second one ends the process at once.
void WaitForStopSignal(const sigset_t& signals) {
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  for (const int number : {SIGTERM, SIGINT}) signal(number, [](int) { _exit(1); });
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// What the engine did, and what it still holds once everything is closed.
void PrintAccount(attn::server::Engine& engine) {
  const attn::server::EngineStats& stats = engine.stats();
  const auto text = [](const attn::server::Counter& counter) {
    return std::to_string(counter.value());
  };
  const long long open = engine.cache_stats().num_sequences;
  const attn::kvcache::CacheStats left = engine.CloseAllSequences();
  std::printf(
      "stopped launches=%s launched_items=%s multi_client_multi_layer_launches=%s calls=%s "
      "open_sequences=%lld leaked_sequences=%lld leaked_pages=%lld accounts=%s\n",
      text(stats.launches).c_str(), std::to_string(stats.launch_items.sum()).c_str(),
      text(stats.multi_client_multi_layer_launches).c_str(), text(stats.calls_completed).c_str(),
      open, static_cast<long long>(left.num_sequences),
      static_cast<long long>(left.pages.live + left.pages.reserved),
      engine.CheckAccounts().ok() ? "exact" : "broken");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    return std::fputs(attn::server::ServerHelp().c_str(), stdout) < 0;
  }
  KeepFreedMemory();
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread
  const auto options = attn::server::ParseServerOptions(arguments);
  attn::server::Log log(STDERR_FILENO, options.ok()
                                           ? *attn::server::ParseLogLevel(options->log_level)
                                           : attn::server::LogLevel::kInfo);
  auto server = options.ok() ? attn::server::Server::Start(*options, &log) : options.status();
  if (!server.ok()) {
    std::fprintf(stderr, "attn-server: %s\n", std::string(server.status().message()).c_str());
    return 2;
  }
  std::printf("options %s\n", options->ToString().c_str());
  std::printf("listening address=%s port=%d\n", (*server)->address().c_str(), (*server)->port());
  if (const attn::server::MetricsEndpoint* metrics = (*server)->metrics()) {
    std::printf("metrics address=%s port=%d\n", metrics->address().c_str(), metrics->port());
  }
  std::fflush(stdout);
  WaitForStopSignal(signals);
  (*server)->Drain();
  PrintAccount((*server)->engine());
  return 0;
}
