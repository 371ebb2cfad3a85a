// Clients that are killed, stopped and cut off at random, beside clients that check every answer:
// no answer is wrong, none of the checking clients sees an error, and at the end every page and
// sequence is accounted for.
//
//   chaos_test --seconds=600 --seed=5    longer, or once more with the same random choices
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tests/e2e/abusive_client.h"
#include "tests/e2e/survivor.h"
#include "tests/support/server_process.h"

namespace attn::test {
namespace {

using ::testing::HasSubstr;

double g_seconds = 10;
uint64_t g_seed = 0;

// Processes of RunAbusiveClient, which come, stop, go on and are killed at random.
class Abuse {
 public:
  Abuse(std::string target, uint64_t seed) : target_(std::move(target)), random_(seed) {}
  ~Abuse() {
    while (!processes_.empty()) Kill(0);
  }

  void ActOnce() {
    const size_t any = static_cast<size_t>(
        random_.Integer(0, std::max<int64_t>(0, static_cast<int64_t>(processes_.size()) - 1)));
    const int64_t die = random_.Integer(0, 99);
    if (processes_.size() < 2 || (die < 20 && processes_.size() < 6)) return Start();
    if (die < 35) return Kill(any);
    kill(processes_[any], die < 60 ? SIGSTOP : SIGCONT);
  }
  int num_killed() const { return num_killed_; }

 private:
  void Start() {
    std::vector<std::string> words = {"chaos_test", "--abuse=" + target_,
                                      "--seed=" + std::to_string(random_.Next() >> 1)};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t process = 0;
    ASSERT_EQ(posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
    processes_.push_back(process);
  }
  void Kill(size_t index) {
    kill(processes_[index], SIGKILL);
    int status = 0;
    waitpid(processes_[index], &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "an abusive client ended by itself";
    processes_.erase(processes_.begin() + static_cast<int64_t>(index));
    ++num_killed_;
  }

  const std::string target_;
  Random random_;
  std::vector<pid_t> processes_;
  int num_killed_ = 0;
};

void DeclareTiny(const std::string& target) {
  Stubs stubs(target);
  grpc::ClientContext context;
  v1::DeclareModelRequest request;
  *request.mutable_spec() = TinySpec();
  v1::DeclareModelResponse response;
  ASSERT_TRUE(stubs.models->DeclareModel(&context, request, &response).ok());
}

TEST(ChaosTest, KilledStoppedAndCutOffClientsHurtNobodyElseAndLeaveNothingBehind) {
  SCOPED_TRACE(::testing::Message() << "seed " << g_seed);
  ServerProcess server({"--min-lease-ms=100", "--kv-bytes=256M", "--max-queue-ms=0", "--threads=1",
                        "--unread-ms=200"});
  ASSERT_NE(server.port(), 0) << "attn-server did not start";
  DeclareTiny(server.target());
  std::vector<std::unique_ptr<Survivor>> survivors;
  for (uint64_t i = 0; i < 4; ++i) {
    survivors.push_back(std::make_unique<Survivor>(
        server.target(), i % 2 == 0 ? Survivor::Kind::kUnary : Survivor::Kind::kStream,
        g_seed + i));
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const auto& survivor : survivors) {
    threads.emplace_back([&] { survivor->Run(stop); });
  }
  int num_killed = 0;
  {
    Abuse abuse(server.target(), g_seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(g_seconds);
    while (std::chrono::steady_clock::now() < end && !HasFailure()) {
      abuse.ActOnce();
      std::this_thread::sleep_for(std::chrono::milliseconds(40));  // the pace of the abuse
    }
    num_killed = abuse.num_killed();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  int64_t num_rows = 0;
  for (const auto& survivor : survivors) {
    survivor->Finish();
    num_rows += survivor->num_rows();
  }
  EXPECT_GT(num_killed, g_seconds / 2);
  EXPECT_GT(num_rows, 100 * g_seconds);
  // What the server promises for those that are gone: a second after their leases of 200 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.output(),
              HasSubstr("open_sequences=0 leaked_sequences=0 leaked_pages=0 accounts=exact"));
  std::printf("%lld rows checked, %d clients killed\n", static_cast<long long>(num_rows),
              num_killed);
}

}  // namespace
}  // namespace attn::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  attn::test::g_seed = std::random_device()();
  std::string abused;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string value = argument.substr(argument.find('=') + 1);
    if (absl::StartsWith(argument, "--seconds=")) attn::test::g_seconds = std::stod(value);
    if (absl::StartsWith(argument, "--seed=")) attn::test::g_seed = std::stoull(value);
    if (absl::StartsWith(argument, "--abuse=")) abused = value;
  }
  if (!abused.empty()) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no abuse without its test
    attn::test::RunAbusiveClient(abused, attn::test::g_seed);
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(attn::test::g_seed));
  return RUN_ALL_TESTS();
}
